"""Base classes of tasks: those with known judgements, and descriptive statistics beside the data."""
