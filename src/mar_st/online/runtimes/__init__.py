"""The runtimes of exported graphs, one module each; to add a runtime, add a module here."""
