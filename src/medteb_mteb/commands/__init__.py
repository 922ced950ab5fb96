"""Implementation of the `medteb` commands; `medteb_mteb.cli` only parses their arguments."""
