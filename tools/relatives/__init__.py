"""Data of published English sets, built from the raw files of their sources and from open APIs."""
