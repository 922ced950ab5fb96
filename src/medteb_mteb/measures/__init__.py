"""Measures of rankings with known judgements."""
