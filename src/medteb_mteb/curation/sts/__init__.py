"""Synonym STS: an LLM rewrites queries that have a term of a dictionary of synonyms."""
