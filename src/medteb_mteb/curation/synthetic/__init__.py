"""Synthetic training data: queries for documents, and whole retrieval tasks."""
