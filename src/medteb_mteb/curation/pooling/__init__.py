"""Candidates of several retrievers."""
