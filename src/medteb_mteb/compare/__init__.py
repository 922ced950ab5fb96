"""Results from any source as one table, and their comparison."""
