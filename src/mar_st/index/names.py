"""Names of the files of a segment."""

from __future__ import annotations

__all__ = ["INDEX", "MEANS", "TRAINED", "VECTORS"]

VECTORS, INDEX, MEANS = "vectors.npy", "index.faiss", "means.npy"

#: An index that is trained and empty, from which segments that are added take their codes.
TRAINED = "trained.faiss"
