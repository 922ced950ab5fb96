"""Exact search in C++ against NumPy."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mar_st.kernels import exact
from mar_st.kernels.build import processor
from mar_st.kernels.exact import MAX_K, REQUIRED_FLAGS, exact_search

pytestmark = [
    pytest.mark.skipif(not processor().flags >= REQUIRED_FLAGS, reason="this processor has no AVX-512"),
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="this machine has no C++ compiler"
    ),
]


def made(count: int, dim: int, seed: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(dtype)


def naive(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best, missing = np.take_along_axis(scores, rows, 1), ((0, 0), (0, k - rows.shape[1]))
    return np.pad(best, missing, constant_values=-np.inf), np.pad(rows, missing, constant_values=-1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dim", [1, 15, 16, 17, 64, 100])
def test_search_equals_brute_force(dim: int, dtype: type) -> None:
    search = exact_search(2)
    sizes = ((1, 1, 1), (1, 700, 10), (5, 3, 7), (6, 1001, 100), (13, 515, 1), (300, 130, 200))
    for count, total, k in sizes:
        queries, vectors = made(count, dim, 0), made(total, dim, 1, dtype)
        scores, rows = search.search(queries, vectors, k)
        expected, places = naive(queries, vectors, k)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
        assert (rows == places).mean() > 0.999  # sums of float32 may change places
        assert (np.sort(rows) == np.sort(places)).mean() > 0.999


def test_single_and_batched_queries_get_identical_scores() -> None:
    queries, vectors = made(31, 75, 0), made(5003, 75, 1)
    scores, rows = exact_search(2).search(queries, vectors, 20)
    for threads in (1, 5):
        for size in (1, 4, 31):
            for start in range(0, 31, size):
                result = exact_search(threads).search(queries[start : start + size], vectors, 20)
                np.testing.assert_array_equal(result[0], scores[start : start + size])
                np.testing.assert_array_equal(result[1], rows[start : start + size])
    # A mask does not change the scores of the rows that pass.
    passed = np.zeros(5003, bool)
    passed[rows[0]] = True
    again = exact_search(2).search(queries[:1], vectors, 20, np.packbits(passed, bitorder="little"))
    np.testing.assert_array_equal(again[0], scores[:1])


def test_equal_scores_are_ranked_by_row() -> None:
    vectors = np.tile(made(1, 32, 0), (2000, 1))
    for threads in (1, 2, 5):
        _, rows = exact_search(threads).search(vectors[:3], vectors, 50)
        assert (rows == np.arange(50)).all()


def test_strided_and_mapped_arrays_are_searched(tmp_path) -> None:
    wide = made(900, 48, 0)
    np.save(tmp_path / "vectors.npy", wide)
    expected = naive(wide[:9, :20], wide[:, :20], 5)[1]
    for vectors in (wide[:, :20], np.load(tmp_path / "vectors.npy", mmap_mode="r")[:, :20]):
        assert exact.takes(vectors, 5)
        np.testing.assert_array_equal(exact_search(2).search(wide[:9, :20], vectors, 5)[1], expected)
    for odd in (wide[:, ::2], wide[::-1], wide.T, wide.astype(np.float64)):
        assert not exact.takes(odd, 5)
    assert not exact.takes(wide, MAX_K + 1)


def test_vectors_of_nan_are_not_found() -> None:
    vectors = made(200, 16, 0)
    vectors[[3, 77]] = np.nan
    _, rows = exact_search(2).search(made(8, 16, 1), vectors, 200)
    assert not np.isin([3, 77], rows).any()
    assert (rows[:, -2:] == -1).all()


def _search_in_child(queries: np.ndarray, vectors: np.ndarray) -> list[list[int]]:
    rows: list[list[int]] = exact_search(2).search(queries, vectors, 3)[1].tolist()
    return rows


def test_a_forked_process_searches_with_its_own_threads() -> None:
    queries, vectors = made(4, 32, 0), made(4000, 32, 1)
    expected = exact_search(2).search(queries, vectors, 3)[1].tolist()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_search_in_child, (queries, vectors)).get(60) == expected


def test_search_works_without_a_compiler(tmp_path) -> None:
    script = (
        "import numpy as np; from mar_st.index import flat; from mar_st.kernels.exact import exact_search; "
        "v = np.eye(2000, 600, dtype=np.float32); "
        "print(exact_search(2), flat.search(v[5:6], v, 1)[1].tolist())"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert process.stdout.split() == ["None", "[[5]]"]
