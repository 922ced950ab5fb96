"""Near-duplicates, splits, terms, redundancy."""
