"""Sources of the vectors of a segment while it is built: a folder of vectors, or other segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from mar_st.index.errors import IndexingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mar_st.encode import VectorFolder

#: Vectors that are read at once.
VECTORS_PER_READ = 8192

#: Length of a vector (float32) below which its squares lose digits.
_SHORTEST = 1e-12


class VectorSource(Protocol):
    """Vectors in a fixed order, `dim` float32 each, as they are compared."""

    dim: int

    def __len__(self) -> int: ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return some vectors, `(rows, dim)` float32."""

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Return all vectors from a row on, `VECTORS_PER_READ` at a time."""


class FolderSource:
    """A folder of vectors, normalised to length 1 if they are compared by cosine.

    Raises:
        IndexingError: The folder is empty; or, when its vectors are read, one holds NaN or infinite values.
    """

    def __init__(self, folder: VectorFolder) -> None:
        self.folder, self.dim = folder, folder.dim
        # Vectors of length 1 that are stored in eight bits or one bit no longer have length exactly 1.
        whole = folder.normalised and folder.dtype in ("float32", "float16")
        self.unit = folder.similarity == "cosine" and not whole
        if not len(folder):
            raise IndexingError(f"{folder.path} holds no vectors. Encode a corpus with documents.")

    def __len__(self) -> int:
        return len(self.folder)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read some rows, as `VectorSource.take`."""
        return self._compared(self.folder[rows])

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Read blocks of rows, as `VectorSource.blocks`."""
        for at in range(start, len(self), VECTORS_PER_READ):
            yield self._compared(self.folder[at : at + VECTORS_PER_READ])

    def _compared(self, vectors: np.ndarray) -> np.ndarray:
        if not np.isfinite(vectors).all():
            raise IndexingError(f"{self.folder.path} holds NaN or infinite values. Encode the corpus again.")
        return unit(vectors) if self.unit else vectors


class RowsSource:
    """Some rows of some arrays, one array after the other.

    Args:
        parts: Vectors `(n, dim)`, float32 or float16, and the rows to take of them.
    """

    def __init__(self, parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        self.parts, self.dim = list(parts), int(parts[0][0].shape[1])
        self._ends = np.cumsum([len(rows) for _, rows in self.parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read some rows of the parts, as `VectorSource.take`."""
        taken = np.empty((len(rows), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._ends, rows, side="right")
        for number, (vectors, part_rows) in enumerate(self.parts):
            here = np.flatnonzero(numbers == number)
            start = int(self._ends[number]) - len(part_rows)
            taken[here] = vectors[part_rows[rows[here] - start]]
        return taken

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Read blocks of rows, as `VectorSource.blocks`."""
        for at in range(start, len(self), VECTORS_PER_READ):
            yield self.take(np.arange(at, min(at + VECTORS_PER_READ, len(self))))


class JoinedSource:
    """Several sources, one after the other."""

    def __init__(self, sources: Sequence[VectorSource]) -> None:
        self.sources, self.dim = list(sources), sources[0].dim
        self._starts = np.cumsum([0, *map(len, self.sources)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read some rows of the sources, as `VectorSource.take`."""
        taken = np.empty((len(rows), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number, source in enumerate(self.sources):
            here = np.flatnonzero(numbers == number)
            if len(here):
                taken[here] = source.take(rows[here] - self._starts[number])
        return taken

    def blocks(self, start: int = 0) -> Iterator[np.ndarray]:
        """Read blocks of rows, as `VectorSource.blocks`."""
        for at in range(start, len(self), VECTORS_PER_READ):
            yield self.take(np.arange(at, min(at + VECTORS_PER_READ, len(self))))


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return finite vectors normalised to length 1, float32; a vector of zeros does not change."""
    vectors = np.asarray(vectors, dtype=np.result_type(vectors, np.float32))
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    usual = (lengths >= _SHORTEST) & np.isfinite(lengths)
    normalised = np.asarray(vectors / np.where(usual, lengths, 1), dtype=np.float32)
    others = ~usual[..., 0]
    if others.any():  # squares are beyond the range of float32, or all are zero
        doubles = vectors[others].astype(np.float64)
        lengths = np.linalg.norm(doubles, axis=-1, keepdims=True)
        normalised[others] = doubles / np.where(lengths == 0, 1, lengths)
    return normalised
