"""Training sets: triples by two-list judging, alignment sets, and the round-trip consistency filter."""
