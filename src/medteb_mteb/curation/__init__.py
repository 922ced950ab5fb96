"""Building benchmarks and training data from raw text: typed records through resumable steps."""
