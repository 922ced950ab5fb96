"""Scripts: data that the project packages, and data of published benchmarks from raw files."""
