"""Scores of models on sets, and statistics of them."""
