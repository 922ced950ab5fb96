"""Rows of vectors in int8, as lookup encoders and their pages store them."""

from __future__ import annotations

import numpy as np

__all__ = ["int8_rows"]


def int8_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in int8, and the scale of each row."""
    scales = np.maximum(np.abs(vectors).max(axis=1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales
