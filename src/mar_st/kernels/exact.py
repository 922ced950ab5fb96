"""Exact search by `exact.cpp`."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from functools import lru_cache
from pathlib import Path

import numpy as np

from mar_st.kernels.build import CompileError, close_with, library, processor

_LOG = logging.getLogger(__name__)

#: Required processor features, as Linux names them.
REQUIRED_FLAGS = frozenset({"avx512f", "avx512dq", "fma"})
_COMPILER_FLAGS = ("-mavx512f", "-mavx512dq", "-mfma")

#: Maximum results per query; each thread keeps this number for each query.
MAX_K = 4096

#: Queries per call of the kernel; more would not stay in a processor's cache.
_QUERIES_PER_CALL = 256


class ExactSearch:
    """A team of threads that searches for one caller at a time.

    Args:
        kernels: The compiled `exact.cpp`.
        threads: Number of threads, the caller's included.

    Raises:
        MemoryError: No further thread can be started.
    """

    def __init__(self, kernels: ctypes.CDLL, threads: int) -> None:
        self._kernels, self._lock = kernels, threading.Lock()
        self._team = kernels.mar_exact_open(threads)
        if not self._team:
            raise MemoryError(f"The system could not start {threads} threads.")
        close_with(self, kernels.mar_exact_close, self._team)

    def search(
        self, queries: np.ndarray, vectors: np.ndarray, k: int, bits: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the `k` vectors of highest inner product for each query.

        A query's results are bit-identical whatever queries are searched with it, and with any number of
        threads.

        Args:
            queries: `(n, dim)` float32.
            vectors: `(total, dim)` float32 or float16; may be mapped into memory. See `takes`.
            k: Vectors per query, at most `MAX_K`.
            bits: Packed bits, lowest bit first; only vectors whose bit is set are compared.

        Returns:
            Scores, float32, and rows, int64, `(n, k)`, by descending score, ties by row; -inf and -1 where
            there are fewer.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        scores = np.empty((len(queries), k), dtype=np.float32)
        rows = np.empty((len(queries), k), dtype=np.int64)
        for start in range(0, len(queries), _QUERIES_PER_CALL):
            batch = slice(start, start + _QUERIES_PER_CALL)
            with self._lock:
                state = self._kernels.mar_exact_search(  # releases the interpreter's lock
                    self._team, queries[batch].ctypes.data, len(queries[batch]), vectors.ctypes.data,
                    len(vectors), vectors.shape[1], vectors.strides[0] // vectors.itemsize,
                    int(vectors.dtype == np.float16), None if bits is None else bits.ctypes.data, k,
                    scores[batch].ctypes.data, rows[batch].ctypes.data,
                )  # fmt: skip
            if state:
                raise MemoryError(f"There is not enough memory for {k} results of {len(queries)} queries.")
        return scores, rows


def takes(vectors: np.ndarray, k: int) -> bool:
    """Return True if `ExactSearch` supports this dtype, memory layout and k."""
    return (
        vectors.dtype in (np.float32, np.float16)
        and vectors.strides[1] == vectors.itemsize
        and vectors.strides[0] % vectors.itemsize == 0
        and vectors.strides[0] > 0
        and k <= MAX_K
    )


@lru_cache(maxsize=4)
def exact_search(threads: int) -> ExactSearch | None:
    """Return the search for some threads; `None` if AVX-512, a compiler or threads are missing."""
    kernels = _kernels()
    if kernels is None:
        return None
    try:
        return ExactSearch(kernels, threads)
    except MemoryError as error:
        _LOG.info("exact search runs without its native kernel: %s", error)
        return None


@lru_cache(maxsize=1)
def _kernels() -> ctypes.CDLL | None:
    if not processor().flags >= REQUIRED_FLAGS:
        return None
    try:
        kernels = library(Path(__file__).with_name("exact.cpp"), _COMPILER_FLAGS)
    except CompileError as error:
        _LOG.info("exact search runs without its native kernel: %s", error)
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    kernels.mar_exact_open.argtypes = [ctypes.c_int32]
    kernels.mar_exact_open.restype = pointer
    kernels.mar_exact_close.argtypes = [pointer]
    kernels.mar_exact_close.restype = None
    kernels.mar_exact_search.argtypes = [
        pointer, pointer, size, pointer, size, size, size, ctypes.c_int32, pointer, size, pointer, pointer,
    ]  # fmt: skip
    kernels.mar_exact_search.restype = ctypes.c_int32
    return kernels


if hasattr(os, "register_at_fork"):
    # Threads do not exist in the new process.
    os.register_at_fork(after_in_child=exact_search.cache_clear)
