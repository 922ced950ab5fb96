"""Studies: a grid of recipes x seeds, scored and compared with tests."""
