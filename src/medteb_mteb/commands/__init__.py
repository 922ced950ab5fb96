"""What the commands of `medteb` do; `medteb_mteb.cli` only parses."""
