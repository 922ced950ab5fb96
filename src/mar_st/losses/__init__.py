"""Training losses that sentence-transformers does not have."""
