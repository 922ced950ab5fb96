"""Exact search: inner products with all vectors, or with some of them.

If the processor has AVX-512 and there is a C++ compiler (or an already compiled kernel), large searches use
`mar_st.kernels.exact`. All other searches use FAISS and matrix products.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mar_st.index.errors import need
from mar_st.kernels.exact import exact_search, takes
from mar_st.kernels.processor import processors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mar_st.index.mask import Mask
    from mar_st.kernels.exact import ExactSearch

#: Vectors per block if they have to be copied (other type, or picked rows).
VECTORS_PER_BLOCK = 8192

#: From this many queries on, matrices are multiplied; below, FAISS scans the vectors once per query.
MIN_QUERIES_FOR_PRODUCTS = 8

#: Queries per matrix product.
_QUERIES_PER_PRODUCT = 512

#: Maximum share of the rows that a mask may leave for them to be picked out.
_MAX_PICKED_SHARE = 0.1

#: Minimum number of values in all vectors that makes compiling our kernel worthwhile.
_MIN_VALUES_FOR_KERNEL = 1_000_000

#: Number of multiplications that justify another thread.
_MULTIPLICATIONS_PER_THREAD = 4_000_000


def top(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
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


def search(
    queries: np.ndarray, vectors: np.ndarray, k: int, *, mask: Mask | None = None
) -> tuple[np.ndarray, np.ndarray]:
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
    total = len(vectors) if mask is None else mask.count
    wanted = min(k, total)
    if not wanted or not len(queries):
        return top(*_no_results(queries), k)
    kernel = _kernel_for(vectors, k)
    if kernel is not None:
        bits = mask.bits if mask is not None and total < len(vectors) else None
        return kernel.search(queries, vectors, k, bits)
    rows = None
    if mask is not None and total < len(vectors):
        # Picking rows costs a copy; if most pass, it is cheaper to scan all and skip some.
        picked = (
            vectors.dtype != np.float32
            or len(queries) >= MIN_QUERIES_FOR_PRODUCTS
            or total < _MAX_PICKED_SHARE * len(vectors)
        )
        rows = mask.rows if picked else None
    else:
        mask = None
    if len(queries) >= MIN_QUERIES_FOR_PRODUCTS:
        chunks = range(0, len(queries), _QUERIES_PER_PRODUCT)
        parts = [
            _products(queries[at : at + _QUERIES_PER_PRODUCT], vectors, rows, wanted, total) for at in chunks
        ]
        return top(
            np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), k
        )
    shares = _shares(len(vectors) if rows is None else total, len(queries) * vectors.shape[1])
    if len(shares) == 1:
        return top(*_search_rows(queries, vectors, rows, mask, wanted, shares[0]), k)
    return merge(
        _pool().map(lambda share: _search_rows(queries, vectors, rows, mask, wanted, share), shares), k
    )


def merge(results: Iterable[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best `k` of several results (scores and rows) of the same queries."""
    scores, rows = zip(*results, strict=True)
    return top(np.concatenate(scores, 1), np.concatenate(rows, 1), k)


def rescore(
    queries: np.ndarray, vectors: np.ndarray, candidates: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
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


def _kernel_for(vectors: np.ndarray, k: int) -> ExactSearch | None:
    """Return our own kernel if it is available and worthwhile."""
    if vectors.size < _MIN_VALUES_FOR_KERNEL or not takes(vectors, k):
        return None
    return exact_search(min(_processors(), need("faiss").omp_get_max_threads()))


@cache
def _processors() -> int:
    """Count the processors once: it reads files, which takes as long as a small search."""
    return processors()


def _search_rows(
    queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray | None, mask: Mask | None, k: int, part: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Search some of the rows for few queries: FAISS scans the vectors once per query."""
    if rows is None and vectors.dtype == np.float32:
        bits = None if mask is None else mask.bits[part.start // 8 : -(-part.stop // 8)]
        scores, places = _knn(queries, vectors[part], k, bits)
        return scores, np.where(places >= 0, places + part.start, -1)
    best = top(*_no_results(queries), k)
    for chosen, block in _blocks(vectors, rows, part):
        scores, places = _knn(queries, block, k)
        best = merge([best, (scores, chosen[places])], k)
    return best


def _products(
    queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray | None, k: int, total: int
) -> tuple[np.ndarray, np.ndarray]:
    """Search for many queries: matrix products, of which only scores above the best `k` so far are kept."""
    best = top(*_no_results(queries), k)
    for chosen, block in _blocks(vectors, rows, slice(0, total)):
        scores = queries @ block.T
        better = scores > best[0][:, -1:]
        counts = np.count_nonzero(better, axis=1)
        max_count = int(counts.max())
        if not max_count:
            continue
        if max_count > 4 * k:
            places = _best_places(scores, min(k, scores.shape[1]))
            candidates = np.take_along_axis(scores, places, axis=1), chosen[places]
        else:
            query, place = np.nonzero(better)
            slot = np.arange(len(query)) - (np.cumsum(counts) - counts)[query]
            candidates = top(*_no_results(queries), max_count)
            candidates[0][query, slot] = scores[query, place]
            candidates[1][query, slot] = chosen[place]
        best = merge([best, candidates], k)
    return best


def _best_places(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the `k` highest scores of each row in any order; of equal scores, the first."""
    places = np.argpartition(scores, -k, axis=1)[:, -k:]
    kept = np.take_along_axis(scores, places, axis=1)
    lowest = kept.min(axis=1, keepdims=True)
    # argpartition keeps any of the columns that share the lowest score.
    cut = np.count_nonzero(scores == lowest, axis=1) > np.count_nonzero(kept == lowest, axis=1)
    for row in np.flatnonzero(cut):
        higher = np.flatnonzero(scores[row] > lowest[row])
        equal = np.flatnonzero(scores[row] == lowest[row])
        places[row] = np.concatenate([higher, equal[: k - len(higher)]])
    return places


def _blocks(
    vectors: np.ndarray, rows: np.ndarray | None, part: slice
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield row numbers and float32 vectors, block by block."""
    for start in range(part.start, part.stop, VECTORS_PER_BLOCK):
        stop = min(start + VECTORS_PER_BLOCK, part.stop)
        chosen = np.arange(start, stop) if rows is None else rows[start:stop]
        yield chosen, np.asarray(vectors[start:stop] if rows is None else vectors[chosen], dtype=np.float32)


def _no_results(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)


def _knn(
    queries: np.ndarray, vectors: np.ndarray, k: int, bits: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best vectors by FAISS; with `bits`, only rows whose bit is set."""
    faiss = need("faiss")
    shape = len(queries), min(k, len(vectors))
    scores, places = np.empty(shape, np.float32), np.empty(shape, np.int64)
    arrays = (np.ascontiguousarray(queries), vectors, scores, places)
    query, vector, score, place = map(faiss.swig_ptr, arrays)
    selector = None if bits is None else faiss.IDSelectorBitmap(bits)
    faiss.knn_inner_product(
        query, vector, vectors.shape[1], len(queries), len(vectors), shape[1], score, place, selector
    )
    return np.where(places >= 0, scores, -np.inf).astype(np.float32, copy=False), places


def _shares(total: int, work: int) -> list[slice]:
    """Return the rows for each thread; FAISS itself spreads queries over threads, not vectors."""
    threads = min(need("faiss").omp_get_max_threads(), total * work // _MULTIPLICATIONS_PER_THREAD + 1)
    edges = [*(total * share // threads // 8 * 8 for share in range(threads)), total]  # whole bytes of a mask
    return [slice(start, stop) for start, stop in pairwise(edges)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_processors(), thread_name_prefix="flat-search")
