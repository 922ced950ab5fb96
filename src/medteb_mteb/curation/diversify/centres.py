"""Centres of an inverted file's lists: spherical k-means over a sample, computed once.

FAISS has k-means too; this one computes its products in the type that is faster on this machine; in bfloat16
it is ten times as fast. It need not be exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mar_st.files import finished
from mar_st.files.arrays import load_array
from medteb_mteb.curation.diversify.product import faster
from medteb_mteb.curation.diversify.vectors import unit
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VECTORS_PER_LIST", "Centres", "find_centres", "sample_rows"]

#: Vectors of the sample per list.
VECTORS_PER_LIST = 24
ITERATIONS = 6
VECTORS_PER_BLOCK = 4096


class Centres:
    """Finds the nearest centres of vectors.

    Args:
        centres: `(lists, dim)` float32.
        dtype: Data type of the products; default the faster one.
    """

    def __init__(self, centres: np.ndarray, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype or faster(centres.shape[1])
        self._values = torch.from_numpy(centres).to(self.dtype)

    def __len__(self) -> int:
        return len(self._values)

    def nearest(self, vectors: np.ndarray, number: int = 1) -> np.ndarray:
        """Return the nearest centres of vectors `(n, dim)` float32, nearest first: `(n, number)` int64."""
        indices = []
        for start in range(0, len(vectors), VECTORS_PER_BLOCK):
            block = torch.from_numpy(vectors[start : start + VECTORS_PER_BLOCK]).to(self.dtype)
            scores = torch.mm(block, self._values.t())
            indices.append(scores.float().topk(number, dim=1).indices.numpy())
        return np.concatenate(indices) if indices else np.empty((0, number), dtype=np.int64)


def sample_rows(texts: int, number: int) -> np.ndarray:
    """Return rows spread evenly over all texts, `(min(texts, number),)` int64."""
    return np.linspace(0, max(0, texts - 1), min(texts, number)).astype(np.int64)


def find_centres(sample: Callable[[], np.ndarray], lists: int, file: str | Path | None = None) -> np.ndarray:
    """Return the centres of length 1, `(lists, dim)` float32; fewer where the sample has fewer vectors.

    Args:
        sample: Returns vectors, `(n, dim)`, spread over all texts.
        lists: Number of lists, each with a centre.
        file: File of the centres, read if it exists, so that a resumed run uses the same ones.

    Raises:
        BuildError: The file exists and does not hold such centres.
        NotFiniteError: A vector of the sample has NaN or infinite values.
    """
    if file is not None and Path(file).is_file():
        return _stored(Path(file), lists)
    vectors = unit(sample())
    centres: np.ndarray = vectors[sample_rows(len(vectors), lists)]
    for _ in range(ITERATIONS):
        nearest = Centres(centres).nearest(vectors)[:, 0]
        sums = torch.zeros(centres.shape)
        sums.index_add_(0, torch.from_numpy(nearest), torch.from_numpy(vectors))
        moved = unit(sums.numpy())
        empty = ~moved.any(axis=1)
        moved[empty] = centres[empty]
        centres = moved
    if file is not None:
        with finished(Path(file)) as part, part.open("wb") as stream:
            np.save(stream, centres)
    return centres


def _stored(file: Path, lists: int) -> np.ndarray:
    try:
        centres = load_array(file)
    except (OSError, ValueError) as error:
        raise BuildError(
            f"{file} cannot be read as centres of lists ({error}). Delete it and run the command again."
        ) from error
    usable = centres.ndim == 2 and centres.dtype == np.float32 and len(centres) <= lists
    if not usable or not np.isfinite(centres).all():
        raise BuildError(
            f"{file} does not hold the centres of this run: expected at most {lists} finite float32 vectors, "
            f"got {centres.dtype} of shape {centres.shape}. Delete it and run the command again."
        )
    return centres
