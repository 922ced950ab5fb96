"""Every kind of index finds the neighbours that exact search finds, within the memory it says."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.index import flat
from mar_st.index.flat import Mask
from mar_st.index.tune import calibrate, exact_rows, made_queries, recall
from mar_st.index.vectors import (
    LADDERS,
    VectorIndex,
    Vectors,
    build_settings,
    build_vectors,
    unit,
)
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
    build_vectors(folder, kind, params, Vectors([(vectors, None)]))
    return folder, kind, params


def test_a_kind_reaches_its_recall_with_the_scores_of_the_vectors(built, vectors):
    folder, kind, _ = built
    index = VectorIndex(folder, kind, COUNT, DIM)
    queries = clustered(60, DIM, seed=7)
    expected = flat.search(queries, vectors, 10)[1]
    tuned = calibrate(index.search, queries, expected, 0.97, LADDERS[kind])
    assert tuned["reached"]
    scores, rows = index.search(queries, 10, tuned["search"])
    assert recall(rows, expected) == pytest.approx(tuned["recall@10"], abs=1e-4)
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, vectors[rows]), atol=2e-3)
    cheaper = LADDERS[kind][: LADDERS[kind].index(tuned["search"])]
    assert all(recall(index.search(queries, 10, one)[1], expected) < 0.97 for one in cheaper)


def test_a_mask_holds_and_fewer_results_are_filled_up(built, vectors, monkeypatch):
    folder, kind, _ = built
    index = VectorIndex(folder, kind, COUNT, DIM)
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


def test_a_file_of_other_vectors_is_refused(built):
    folder, kind, _ = built
    with pytest.raises(MarError, match="Build the index again"):
        VectorIndex(folder, kind, COUNT - 1, DIM)
    with pytest.raises(MarError, match="damaged"):
        VectorIndex(folder / "none", kind, COUNT, DIM)


def test_an_unknown_kind_is_refused():
    with pytest.raises(MarError, match="Kinds of index are"):
        build_settings("annoy", DIM, COUNT)


@pytest.mark.parametrize("kind", LADDERS)
def test_a_single_vector_is_an_index(kind, tmp_path):
    one = clustered(1, 8)
    build_vectors(tmp_path, kind, build_settings(kind, 8, 1), Vectors([(one, None)]))
    assert VectorIndex(tmp_path, kind, 1, 8).search(one, 3)[1].tolist() == [[0, -1, -1]]


def test_sources_are_read_one_after_the_other(vectors):
    source = Vectors([(vectors, np.array([7, 3])), (vectors.astype(np.float16), None)])
    assert len(source) == COUNT + 2
    np.testing.assert_allclose(source[np.array([1, 2, 0])], vectors[[3, 0, 7]], atol=1e-3)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks()))[2:], vectors.astype(np.float16))
    whole = Vectors([(3 * vectors, None)], normalise=True)
    np.testing.assert_allclose(whole[5:9], vectors[5:9], atol=1e-6)


def test_lengths_beyond_the_squares_of_float32_are_normalised():
    large = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0]], np.float32)
    np.testing.assert_allclose(unit(large), [[0.6, 0.8], [0.6, 0.8], [0, 0]], atol=1e-6)


def test_made_queries_have_the_lengths_of_documents_and_are_none_of_them(vectors):
    queries = made_queries(Vectors([(vectors, None)]))
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-5)
    scores, _ = flat.search(queries, vectors, 1)
    assert 0.5 < scores.mean() < 0.999
    np.testing.assert_array_equal(
        exact_rows(Vectors([(vectors, None)]), queries), flat.search(queries, vectors, 10)[1]
    )
