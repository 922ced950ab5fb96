"""Indexes over encoded documents, and the search that combines vectors, words and a reranker.

Nothing here imports torch (a reranker does, and an encoder that was not exported).
"""
