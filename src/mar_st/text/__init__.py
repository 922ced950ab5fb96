"""Normalisation of texts, words, and their lengths."""
