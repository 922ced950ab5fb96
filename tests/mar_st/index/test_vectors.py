"""Every kind of index finds the neighbours that exact search finds, within the memory it says."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode.vectors import Vectors
from mar_st.index import flat
from mar_st.index.flat import Mask
from mar_st.index.tune import made_queries
from mar_st.index.vectors import LADDERS, VectorIndex, build_settings, build_vectors
from tests.mar_st.index.conftest import clustered

COUNT, DIM = 11_000, 32


@pytest.fixture(scope="module")
def vectors():
    return clustered(COUNT, DIM)


@pytest.fixture(scope="module", params=LADDERS)
def built(request, vectors, tmp_path_factory):
    kind, folder = request.param, tmp_path_factory.mktemp("kind")
    params = build_settings(kind, DIM, COUNT)
    params |= {"efConstruction": 40} if kind == "hnsw" else {}
    build_vectors(folder, kind, params, Vectors([vectors]))
    return VectorIndex(folder, kind)


def recall(found, expected):
    return np.mean([len({*a} & {*b}) / len(b) for a, b in zip(found, expected, strict=True)])


def test_a_kind_has_the_scores_of_the_vectors(built, vectors):
    queries = clustered(60, DIM, seed=7)
    scores, rows = built.search(queries, 10, LADDERS[built.kind][-1])
    assert recall(rows, flat.search(queries, vectors, 10)[1]) > 0.95
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, vectors[rows]), atol=2e-3)


def test_a_mask_holds_and_fewer_results_are_filled_up(built, vectors, monkeypatch):
    index = built
    queries = clustered(20, DIM, seed=7)
    passed = np.random.default_rng(1).random(COUNT) < 0.4
    monkeypatch.setattr("mar_st.index.vectors.BRUTE_ROWS", 0)
    _, rows = index.search(queries, 10, mask=Mask(passed))
    assert passed[rows].all()
    assert recall(rows, flat.search(queries, vectors, 10, mask=Mask(passed))[1]) > 0.9
    few = np.zeros(COUNT, bool)
    few[[5, 900, 7000]] = True
    scores, rows = index.search(queries, 5, mask=Mask(few))
    assert (np.sort(rows[:, :3], axis=1) == [5, 900, 7000]).all()
    assert np.isneginf(scores[:, 3:]).all()


@pytest.mark.parametrize("kind", LADDERS)
def test_a_single_vector_is_an_index(kind, tmp_path):
    one = clustered(1, 8)
    build_vectors(tmp_path, kind, build_settings(kind, 8, 1), Vectors([one]))
    assert VectorIndex(tmp_path, kind).search(one, 3)[1].tolist() == [[0, -1, -1]]


def test_made_queries_have_the_lengths_of_documents_and_are_none_of_them(vectors):
    queries = made_queries(Vectors([vectors]))
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-5)
    scores, _ = flat.search(queries, vectors, 1)
    assert 0.5 < scores.mean() < 0.999
