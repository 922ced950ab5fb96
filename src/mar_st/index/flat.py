"""Exact search: inner products with all vectors, or with some of them.

Large searches use `mar_st.kernels.exact` if the processor has AVX-512 and a compiler is there. All other
searches use FAISS, whose threads share the vectors.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mar_st.files import load_package
from mar_st.kernels.build import processors
from mar_st.kernels.exact import exact_search, takes

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Vectors per block if they have to be copied (other type, or picked rows).
_VECTORS_PER_BLOCK = 8192

#: Share of the rows that a mask must leave for them to be scanned in place.
_PICKED_SHARE = 0.1

#: Minimum number of values in all vectors that makes the compiled kernel, or another thread, worthwhile.
_MIN_VALUES = 1_000_000


#: Scores and rows of a search.
Found: TypeAlias = tuple[np.ndarray, np.ndarray]


def faiss() -> Any:
    """Import FAISS.

    Raises:
        MarError: It is not installed.
    """
    return load_package("faiss", extra="index")


class Mask:
    """Rows that pass a filter and are not deleted, as bits.

    Args:
        passed: True for the rows that pass, `(n,)` bool.
    """

    def __init__(self, passed: np.ndarray) -> None:
        self.size = len(passed)
        self.count = int(np.count_nonzero(passed))
        self.bits = np.packbits(passed, bitorder="little")

    @cached_property
    def rows(self) -> np.ndarray:
        """Return the rows, ascending int64."""
        return np.flatnonzero(self.flags())

    def flags(self) -> np.ndarray:
        """Return the mask, `(n,)` bool."""
        return np.unpackbits(self.bits, count=self.size, bitorder="little").view(bool)

    def selector(self) -> Any:
        """Return the mask for FAISS; it points to these bits, so the mask must outlive it."""
        return faiss().IDSelectorBitmap(self.bits)


def top(scores: np.ndarray, rows: np.ndarray, k: int) -> Found:
    """Return the best `k` of each query's candidates, by descending score, ties by row.

    Args:
        scores: `(queries, candidates)` float32; -inf for no candidate.
        rows: Their rows, `(queries, candidates)` int64; -1 for no candidate.
        k: Candidates to keep.

    Returns:
        Scores and rows, `(queries, k)`, filled up with -inf and -1.
    """
    if (scores[:, :-1] > scores[:, 1:]).all():  # most results come in order
        scores, rows = scores[:, :k], rows[:, :k]
    else:
        order = np.lexsort((rows, -scores), axis=1)[:, :k]
        scores, rows = np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
    missing = k - scores.shape[1]
    if missing > 0:
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
    return scores, rows


def merge(results: Iterable[Found], k: int) -> Found:
    """Return the best `k` of several results (scores and rows) of the same queries."""
    scores, rows = zip(*results, strict=True)
    return top(np.concatenate(scores, 1), np.concatenate(rows, 1), k)


def search(queries: np.ndarray, vectors: np.ndarray, k: int, *, mask: Mask | None = None) -> Found:
    """Return the `k` vectors of highest inner product, exactly.

    Args:
        queries: `(queries, dim)` float32.
        vectors: `(n, dim)` float32 or float16, maybe mapped into memory.
        k: Vectors per query.
        mask: Compare with these rows only.

    Returns:
        Scores, float32, and rows, int64, `(queries, k)`, by descending score; -inf and -1 where there are
        fewer.
    """
    if mask is not None and mask.count == len(vectors):
        mask = None
    if vectors.size >= _MIN_VALUES and takes(vectors, k):
        kernel = exact_search(min(_processors(), faiss().omp_get_max_threads()))
        if kernel is not None:
            return kernel.search(queries, vectors, k, None if mask is None else mask.bits)
    # Picking rows costs a copy; if most pass, FAISS scans all and skips some.
    picked = mask is not None and (vectors.dtype != np.float32 or mask.count < _PICKED_SHARE * mask.size)
    rows = mask.rows if mask is not None and picked else None
    total, size = len(vectors) if rows is None else len(rows), _VECTORS_PER_BLOCK
    if rows is None and vectors.dtype == np.float32:  # nothing is copied: a share per thread
        # FAISS itself shares several queries among its threads.
        free = faiss().omp_get_max_threads() // max(1, len(queries))
        threads = max(1, min(free, vectors.size // _MIN_VALUES + 1))
        size = max(8, -(-total // threads) + 7 & ~7)  # whole bytes of a mask

    def block(start: int) -> Found:
        part = vectors[start : start + size] if rows is None else vectors[rows[start : start + size]]
        bits = None if mask is None or picked else mask.bits[start // 8 : (start + size) // 8]
        scores, found = _knn(queries, np.ascontiguousarray(part, dtype=np.float32), k, bits)
        return scores, np.where(found < 0, -1, found + start if rows is None else rows[found + start])

    starts = range(0, total, size)
    run = map if len(starts) < 2 else _pool().map
    nothing = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    return merge([nothing, *run(block, starts)], k)


def _knn(queries: np.ndarray, vectors: np.ndarray, k: int, bits: np.ndarray | None) -> Found:
    """Return the best `k` by FAISS, which scans the vectors once per query; only rows whose bit is set."""
    shape = len(queries), min(k, len(vectors))
    scores, rows = np.empty(shape, np.float32), np.empty(shape, np.int64)
    pointers = map(faiss().swig_ptr, (np.ascontiguousarray(queries), vectors, scores, rows))
    query, vector, score, row = pointers
    selector = None if bits is None else faiss().IDSelectorBitmap(bits)
    faiss().knn_inner_product(
        query, vector, vectors.shape[1], len(queries), len(vectors), shape[1], score, row, selector
    )
    return np.where(rows >= 0, scores, -np.inf).astype(np.float32), rows


def rescore(queries: np.ndarray, vectors: np.ndarray, candidates: np.ndarray, k: int) -> Found:
    """Return the best `k` of each query's candidates by inner product with the vectors themselves.

    Args:
        queries: `(queries, dim)` float32.
        vectors: `(n, dim)` float32 or float16.
        candidates: Rows, `(queries, candidates)` int64; -1 where there is none.
        k: Vectors per query.
    """
    scores = np.full(candidates.shape, -np.inf, dtype=np.float32)
    for query, row in enumerate(candidates):
        valid = np.flatnonzero(row >= 0)
        scores[query, valid] = vectors[row[valid]].astype(np.float32, copy=False) @ queries[query]
    return top(scores, candidates, k)


@cache
def _processors() -> int:
    """Count the processors once: it reads files, which takes as long as a small search."""
    return processors()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_processors(), thread_name_prefix="flat-search")
