"""The runtimes of exported graphs, one module each: a new module here is a new runtime."""
