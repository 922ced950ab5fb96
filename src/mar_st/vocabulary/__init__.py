"""Vocabularies cut to the pieces that texts use: smaller embeddings, the same vectors."""
