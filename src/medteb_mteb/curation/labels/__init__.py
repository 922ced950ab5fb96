"""Grades, agreement, consensus, review."""
