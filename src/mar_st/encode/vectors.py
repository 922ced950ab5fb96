"""Vectors of several sources as one matrix whose rows are read on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Length of a vector (float32) below which its squares lose digits.
_SHORTEST = 1e-12


class Vectors:
    """Rows of folders of vectors or arrays; nothing is read before it is asked for.

    Indexing with a number gives `(dim,)`, with a slice or a sequence of row numbers `(rows, dim)`, float32 in
    both cases. It can be pickled (for the workers of a data loader); the pickle of a folder holds no vectors.

    Args:
        sources: Objects with a `shape` `(rows, dim)` that return some rows: a `VectorFolder`, an array, or
            other `Vectors`.
        rows: Row of each vector, counted over all sources, `(n,)` int64; default all.
        dim: Keep the first `dim` dimensions.
        normalised: Normalise the kept dimensions to length 1.

    Raises:
        MarError: The sources have fewer dimensions.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        rows: np.ndarray | None = None,
        *,
        dim: int | None = None,
        normalised: bool = False,
    ) -> None:
        self.sources, self.normalised = tuple(sources), normalised
        self._starts = np.cumsum([0, *(len(source) for source in sources)], dtype=np.int64)
        self.rows = np.arange(self._starts[-1]) if rows is None else rows
        width = sources[0].shape[1] if sources else 0
        self.dim = dim or width
        if self.dim > width:
            raise MarError(f"dim is {self.dim}, but the vectors have only {width} dimensions.")

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, dim)`."""
        return len(self.rows), self.dim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        rows = np.atleast_1d(self.rows[index])
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            vectors[here] = self.sources[number][rows[here] - self._starts[number]][:, : self.dim]
        vectors = unit(vectors) if self.normalised else vectors
        return vectors[0] if isinstance(index, int | np.integer) else vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return self[:].astype(dtype or np.float32, copy=False)

    def blocks(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """Yield all vectors in order, `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def select(self, rows: np.ndarray) -> Vectors:
        """Return some of the vectors, by row number."""
        return Vectors(self.sources, self.rows[rows], dim=self.dim, normalised=self.normalised)

    def cut(self, dim: int | None, *, normalised: bool = False) -> Vectors:
        """Return the first `dim` dimensions of the vectors (`None`: all), normalised on request."""
        return Vectors(self.sources, self.rows, dim=min(dim or self.dim, self.dim), normalised=normalised)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return finite vectors normalised to length 1, float32; a vector of zeros does not change."""
    vectors = np.asarray(vectors, dtype=np.result_type(vectors, np.float32))
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not ((lengths >= _SHORTEST) & np.isfinite(lengths)).all():  # squares are beyond the range of float32
        vectors = vectors.astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)
