"""Vectors in an array or in files; their similarities as FAISS computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from mar_st.teachers.vectors import Vectors

__all__ = ["KeptVectors", "NotFiniteError", "Pairs", "Rows", "inner_products", "unit"]

#: Vectors `(n, dim)` that can be asked for by slice or row numbers: an array, a memmap, files of a store.
Rows: TypeAlias = "np.ndarray | Vectors"

#: Pairs that are computed at once.
PAIRS_PER_CHUNK = 16_384


class NotFiniteError(BuildError):
    """A vector with NaN or infinite values.

    Attributes:
        row: Number of the vector.
    """

    def __init__(self, row: int) -> None:
        super().__init__(f"Vector {row} has NaN or infinite values; encode its text again.")
        self.row = row


class Pairs(NamedTuple):
    """Pairs of vectors that are alike.

    Attributes:
        left: Row of the vector in the block, `(p,)` int64.
        right: Number of the other vector, `(p,)` int64.
        similarity: `(p,)` float32; NaN if the pair is above the threshold but the value was not requested.
    """

    left: np.ndarray
    right: np.ndarray
    similarity: np.ndarray

    def where(self, chosen: np.ndarray) -> Pairs:
        """Return the pairs selected by a mask, `(p,)` bool."""
        return Pairs(self.left[chosen], self.right[chosen], self.similarity[chosen])


def unit(vectors: np.ndarray, first: int = 0) -> np.ndarray:
    """Return vectors scaled to length 1; each has the same bits whichever rows it comes with.

    Lengths are computed in float64. A vector of zeros stays as it is: it is similar to nothing.

    Args:
        vectors: `(n, dim)` floats.
        first: Number of the first row, for the message.

    Returns:
        `(n, dim)` float32, C order.

    Raises:
        NotFiniteError: A vector has NaN or infinite values.
    """
    doubles = np.ascontiguousarray(vectors, dtype=np.float64)
    length = np.sqrt(np.square(doubles).sum(axis=1, keepdims=True))
    if not np.isfinite(length).all():
        raise NotFiniteError(first + int(np.flatnonzero(~np.isfinite(length[:, 0]))[0]))
    doubles /= np.where(length == 0, 1, length)
    return doubles.astype(np.float32)


class KeptVectors:
    """The vectors that were kept, numbered in order; they are not copied.

    Args:
        dim: Width of the vectors.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._sources: list[Rows] = []
        self._places: list[np.ndarray] = []
        self._starts = [0]

    def __len__(self) -> int:
        return self._starts[-1]

    def add(self, source: Rows, rows: np.ndarray) -> None:
        """Append rows of a source, `(n,)` int64, which get the next numbers."""
        if len(rows):
            self._sources.append(source)
            self._places.append(rows)
            self._starts.append(len(self) + len(rows))

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors of length 1, `(len(numbers), dim)` float32."""
        vectors = np.empty((len(numbers), self.dim), dtype=np.float32)
        source_of = np.searchsorted(self._starts, numbers, side="right") - 1
        for source in np.unique(source_of):
            positions = np.flatnonzero(source_of == source)
            rows = self._places[source][numbers[positions] - self._starts[source]]
            vectors[positions] = unit(self._sources[source][rows])
        return vectors


def inner_products(left: np.ndarray, i: np.ndarray, right: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return inner products of `left[i]` and `right[j]`, bit for bit as a search of `IndexFlatIP` gives them.

    Args:
        left: `(m, dim)` float32, C order.
        i: `(p,)` int64.
        right: `(n, dim)` float32, C order.
        j: `(p,)` int64.

    Returns:
        `(p,)` float32.

    Raises:
        BuildError: FAISS is not installed.
    """
    faiss = import_faiss()
    i, j = np.ascontiguousarray(i, dtype=np.int64), np.ascontiguousarray(j, dtype=np.int64)
    products = np.empty(len(i), dtype=np.float32)
    if len(i):
        pointers = [faiss.swig_ptr(array) for array in (left, i, right, j, products)]
        faiss.pairwise_indexed_inner_product(left.shape[1], len(i), *pointers)
    return products


def similarities(block: np.ndarray, left: np.ndarray, kept: KeptVectors, right: np.ndarray) -> np.ndarray:
    """Return the inner products of rows of a block with kept vectors, `(p,)` float32, in bounded memory."""
    products = np.empty(len(left), dtype=np.float32)
    order = np.argsort(right, kind="stable")  # neighbours on disk are read together
    for start in range(0, len(order), PAIRS_PER_CHUNK):
        chunk = order[start : start + PAIRS_PER_CHUNK]
        numbers, place = np.unique(right[chunk], return_inverse=True)
        products[chunk] = inner_products(block, left[chunk], kept[numbers], place)
    return products


def import_faiss() -> Any:
    """Return the module `faiss`.

    Raises:
        BuildError: FAISS is not installed.
    """
    try:
        import faiss  # lazy: faiss
    except ImportError as error:
        raise BuildError("This step needs FAISS: pip install 'medteb[build]'") from error
    return faiss
