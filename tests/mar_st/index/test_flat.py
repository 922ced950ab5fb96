from __future__ import annotations

import faiss
import numpy as np
import pytest

from mar_st.index import flat
from mar_st.index.flat import Mask
from mar_st.kernels.exact import MAX_K, exact_search, takes

GENERATOR = np.random.default_rng(0)
VECTORS = GENERATOR.standard_normal((20_011, 24)).astype(np.float32)
QUERIES = GENERATOR.standard_normal((40, 24)).astype(np.float32)


def naive(queries, vectors, k, rows):
    scores = queries @ vectors[rows].astype(np.float32).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), rows[order]


@pytest.fixture(params=["faiss", "own"], autouse=True)
def kernels(request, monkeypatch):
    """Both ways to search, whatever the size."""
    monkeypatch.setattr(flat, "takes", takes if request.param == "own" else lambda *_: False)
    monkeypatch.setattr(flat, "_MIN_VALUES", 1000)
    if request.param == "own" and exact_search(1) is None:
        pytest.skip("this machine has no AVX-512, or no C++ compiler")


@pytest.fixture(autouse=True)
def threads_as_they_were():
    before = faiss.omp_get_max_threads()
    yield
    faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("share", [None, 0.9, 0.3, 0.01])
@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_search_is_brute_force(dtype, count, share, threads):
    faiss.omp_set_num_threads(threads)
    vectors = VECTORS.astype(dtype)
    passed = (
        np.ones(len(vectors), bool)
        if share is None
        else np.random.default_rng(1).random(len(vectors)) < share
    )
    scores, rows = flat.search(QUERIES[:count], vectors, 10, mask=None if share is None else Mask(passed))
    expected, places = naive(QUERIES[:count], vectors, 10, np.flatnonzero(passed))
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(rows, places)


@pytest.mark.parametrize("count", [2, 30])
def test_fewer_than_k_are_filled_up(count):
    passed = np.zeros(len(VECTORS), bool)
    passed[[3, 9000, 20_010]] = True
    scores, rows = flat.search(QUERIES[:count], VECTORS, 5, mask=Mask(passed))
    assert (rows[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()
    assert (np.sort(rows[:, :3], axis=1) == [3, 9000, 20_010]).all()
    assert (flat.search(QUERIES[:count], VECTORS, 5, mask=Mask(np.zeros(len(VECTORS), bool)))[1] == -1).all()


def test_equal_scores_are_ranked_by_row():
    vectors = np.repeat(VECTORS[:2], 4, axis=0)
    _, rows = flat.search(vectors[:1], vectors, 4)
    assert rows.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_query_finds_the_same_of_equal_vectors_alone_and_among_others(dtype):
    vectors = np.repeat(VECTORS[:40], 10, axis=0).astype(dtype)
    queries = VECTORS[:12] + 0.01
    _, together = flat.search(queries, vectors, 5)
    alone = [flat.search(query[None], vectors, 5)[1][0].tolist() for query in queries]
    assert alone == [[10 * copy + row for row in range(5)] for copy in range(12)]
    assert (together // 10 == np.arange(12)[:, None]).all()  # BLAS rounds equal products differently


def test_more_results_than_the_kernel_supports_are_found():
    many = MAX_K + 1
    scores, rows = flat.search(QUERIES[:9], VECTORS, many)
    expected, places = naive(QUERIES[:9], VECTORS, many, np.arange(len(VECTORS)))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert (rows == places).mean() > 0.99
