"""Names of the files of a segment."""

from __future__ import annotations

__all__ = ["INDEX", "MEANS", "TRAINED_INDEX", "VECTORS"]

VECTORS, INDEX, MEANS = "vectors.npy", "index.faiss", "means.npy"

#: A trained, empty index whose codes added segments use.
TRAINED_INDEX = "trained.faiss"
