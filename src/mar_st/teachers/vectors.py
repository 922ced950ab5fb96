"""Vectors of teachers in one or several files, memory-mapped, and the keys of their texts."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.errors import MarError, NotFiniteVectorError
from mar_st.files.arrays import load_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: Bytes of a text's key (sha256, cut).
KEY_BYTES = 16

#: Texts whose keys are made at once.
BLOCK_KEYS = 4096
#: Maximum files that one array keeps open.
OPEN_FILES = 256


class StoreError(MarError):
    """Vectors that cannot be stored or found; the message says which and what to do."""


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """Return digests of texts, `(len(texts),)` of dtype `S16`."""
    rest, digests = iter(texts), bytearray()
    while block := list(itertools.islice(rest, BLOCK_KEYS)):
        digests += b"".join(hashlib.sha256(text.encode()).digest()[:KEY_BYTES] for text in block)
    return np.frombuffer(bytes(digests), dtype=f"S{KEY_BYTES}")


class KeyIndex:
    """Positions of keys in a long list of keys; for equal keys, the first position.

    Args:
        keys: Keys, `(n,)` of dtype `S16`.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self._sorted, self._first = np.unique(keys, return_index=True)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the position of each key, `(len(keys),)` int64; -1 if there is none."""
        if not len(self._sorted):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._first[places], -1)


@dataclass(frozen=True)
class Part:
    """An array in a file.

    Attributes:
        path: The file.
        dtype: Type of its elements, or of a record if there is a `field`.
        shape: `(rows, width)`, or `(rows,)` if there is a `field`.
        offset: Bytes before the first element.
        field: Name of the vector's field in a record.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0
    field: str | None = None

    @classmethod
    def npy(cls, path: Path) -> Self:
        """Return the array of an `.npy` file.

        Raises:
            StoreError: The array is not a matrix of floats in row-major order.
        """
        try:
            array: Any = load_array(path, mapped=True)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read as an array of vectors ({error}).") from error
        if array.ndim != 2 or array.dtype.kind != "f" or not array.flags.c_contiguous:
            raise StoreError(
                f"{path} holds {array.dtype} of shape {array.shape}; vectors are floats of shape (texts, "
                "dim), in C order. Save them with numpy.save(path, numpy.ascontiguousarray(vectors))."
            )
        return cls(Path(path), array.dtype, array.shape, int(array.offset))

    @property
    def width(self) -> int:
        """Return the width of its vectors."""
        return int(self.dtype[self.field].shape[0] if self.field else self.shape[1])

    def open(self) -> np.ndarray:
        """Return the vectors, `(rows, width)`, mapped into memory.

        Raises:
            StoreError: The file is missing, or is shorter than when it was listed.
        """
        try:
            array: np.ndarray = np.memmap(
                self.path, dtype=self.dtype, mode="r", shape=self.shape, offset=self.offset
            )
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.path} no longer holds vectors of shape {self.shape} ({error}). Write it again."
            ) from error
        return array[self.field] if self.field else array


class Vectors:
    """Vectors in files, read row by row on request; reading one that is not finite is an error.

    Indexing with a number gives `(dim,)`, with a slice or a sequence of row numbers `(rows, dim)`, float32 in
    both cases. It can be pickled (for the workers of a data loader); the pickle holds file names, no
    vectors.

    Args:
        parts: The files.
        places: Part and row of each vector, `(n, 2)` int64.
        width: Width of the vectors, if there are no parts.
        dim: Keep the first `dim` dimensions.
        normalised: Normalise the kept dimensions to length 1.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        places: np.ndarray,
        *,
        width: int | None = None,
        dim: int | None = None,
        normalised: bool = False,
    ) -> None:
        self.parts, self.places = tuple(parts), places
        self._width = parts[0].width if parts else int(width or 0)
        self.dim, self.normalised = dim or self._width, normalised
        if self.dim > self._width:
            raise StoreError(f"dim is {self.dim}, but the vectors have only {self._width} dimensions.")
        self._open: dict[int, np.ndarray] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, dim)`."""
        return len(self.places), self.dim

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        places = self.places[rows]
        single = places.ndim == 1
        places = places[None] if single else places
        vectors = np.empty((len(places), self.dim), dtype=np.float32)
        for part in np.unique(places[:, 0]):
            here = np.flatnonzero(places[:, 0] == part)
            with np.errstate(over="ignore"):  # reported below
                vectors[here] = self._part(int(part))[places[here, 1], : self.dim]
        if not (finite := np.isfinite(vectors)).all():
            first = int(np.flatnonzero(~finite.all(axis=1))[0])
            part, row = places[first]
            requested = np.atleast_1d(np.arange(len(self))[rows])
            raise NotFiniteVectorError(self.parts[part].path, int(row), int(requested[first]))
        if self.normalised:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors[0] if single else vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return self[:].astype(dtype or np.float32, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def blocks(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """Yield all vectors in order, `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def select(self, rows: np.ndarray) -> Vectors:
        """Return some of the vectors, by row number."""
        return Vectors(
            self.parts, self.places[rows], width=self._width, dim=self.dim, normalised=self.normalised
        )

    def cut(self, dim: int | None, *, normalised: bool = False) -> Vectors:
        """Return the first `dim` dimensions of the vectors (`None`: all), normalised on request."""
        return Vectors(
            self.parts,
            self.places,
            width=self._width,
            dim=min(dim or self.dim, self.dim),
            normalised=normalised,
        )

    def _part(self, number: int) -> np.ndarray:
        if number not in self._open:
            if len(self._open) >= OPEN_FILES:
                del self._open[next(iter(self._open))]
            self._open[number] = self.parts[number].open()
        return self._open[number]
