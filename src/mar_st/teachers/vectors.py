"""Vectors of texts in folders of vectors, memory-mapped, and the keys of the texts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mar_st.encode import VectorFolder

#: Type of a text's key: the first 16 bytes of its sha256, as folders of vectors keep it.
KEY = np.dtype("S16")


def text_keys(texts: Iterable[str]) -> np.ndarray:
    """Return the keys of texts, `(len(texts),)` of type `S16`."""
    return np.frombuffer(b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts), dtype=KEY)


class KeyIndex:
    """Places of keys in a list of keys; for equal keys, the first place.

    Args:
        keys: Keys, `(n,)` of type `S16`.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self._sorted, self._first = np.unique(keys, return_index=True)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the place of each key, `(len(keys),)` int64; -1 if there is none."""
        if not len(self._sorted):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._first[places], -1)


def folder_keys(folder: VectorFolder) -> np.ndarray:
    """Return the keys of the texts of a folder, `(n,)` of type `S16`."""
    chunks = folder.text_digests.chunks
    parts = [
        np.frombuffer(chunk.buffers()[1], KEY)[chunk.offset : chunk.offset + len(chunk)] for chunk in chunks
    ]
    return np.concatenate([np.empty(0, KEY), *parts])


class Vectors:
    """Vectors of texts in folders, read row by row on request.

    Indexing with a number gives `(dim,)`, with a slice or a sequence of row numbers `(rows, dim)`, float32 in
    both cases. It can be pickled (for the workers of a data loader); the pickle holds no vectors.

    Args:
        folders: The folders.
        rows: Row of each vector, counted over all folders, `(n,)` int64.
        dim: Keep the first `dim` dimensions.
        normalised: Normalise the kept dimensions to length 1.
    """

    def __init__(
        self,
        folders: Sequence[VectorFolder],
        rows: np.ndarray,
        *,
        dim: int | None = None,
        normalised: bool = False,
    ) -> None:
        self.folders, self.rows = tuple(folders), rows
        width = folders[0].dim if folders else 0
        self.dim, self.normalised = dim or width, normalised
        if self.dim > width:
            raise MarError(f"dim is {self.dim}, but the vectors have only {width} dimensions.")
        self._ends = np.cumsum([len(folder) for folder in folders], dtype=np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, dim)`."""
        return len(self.rows), self.dim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        rows = self.rows[index]
        single = rows.ndim == 0
        rows = np.atleast_1d(rows)
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            start = self._ends[number] - len(self.folders[number])
            vectors[here] = self.folders[number][rows[here] - start][:, : self.dim]
        if self.normalised:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors[0] if single else vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return self[:].astype(dtype or np.float32, copy=False)

    def blocks(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """Yield all vectors in order, `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def select(self, rows: np.ndarray) -> Vectors:
        """Return some of the vectors, by row number."""
        return Vectors(self.folders, self.rows[rows], dim=self.dim, normalised=self.normalised)

    def cut(self, dim: int | None, *, normalised: bool = False) -> Vectors:
        """Return the first `dim` dimensions of the vectors (`None`: all), normalised on request."""
        return Vectors(self.folders, self.rows, dim=min(dim or self.dim, self.dim), normalised=normalised)
