"""Tests of what all indexes have in common: checks of queries, scores, and settings per query encoder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, build_index
from mar_st.index.base import MAX_RESULTS, check_scores, checked_settings
from tests.mar_st.index.conftest import clustered

COUNT, DIM = 30, 16
VECTORS = clustered(COUNT, DIM) * np.linspace(0.5, 2, COUNT, dtype=np.float32)[:, None]
QUERIES = clustered(4, DIM, seed=5)


@pytest.fixture(scope="module", params=["cosine", "dot"])
def index(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    write_vectors(folder / "v", [f"d{row}" for row in range(COUNT)], VECTORS, similarity=request.param)
    build_index(folder / "v", folder / "index", kind="exact", progress=False)
    return Index.open(folder / "index")


@pytest.mark.parametrize("scale", [1e-6, 3.0, 1e12])
def test_the_length_of_a_query_changes_only_inner_products(index, scale):
    ids, scores = index.search(QUERIES, 5)
    scaled_ids, scaled = index.search(QUERIES * np.float32(scale), 5)
    assert scaled_ids == ids
    np.testing.assert_allclose(scaled, scores * (1 if index.similarity == "cosine" else scale), rtol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        lambda vectors: vectors.tolist(),
        lambda vectors: vectors.astype(np.float64),
        np.asfortranarray,
        lambda vectors: np.repeat(vectors, 2, axis=1)[:, ::2],
        lambda vectors: vectors.astype(">f4"),
    ],
    ids=["lists", "float64", "columns", "strided", "big-endian"],
)
def test_queries_of_any_layout_give_the_same_result(index, form):
    ids, scores = index.search(QUERIES, 5)
    other_ids, other = index.search(form(QUERIES), 5)
    assert other_ids == ids
    np.testing.assert_array_equal(other, scores)


def test_fewer_documents_than_asked_for_are_filled_up(index):
    ids, scores = index.search(QUERIES, COUNT + 3)
    assert [len(set(row)) for row in ids] == [COUNT] * len(QUERIES)
    assert np.isfinite(scores[:, :COUNT]).all()
    assert np.isneginf(scores[:, COUNT:]).all()
    none, empty = index.search(QUERIES[:0], 3)
    assert (none, empty.shape) == ([], (0, 3))


ZEROS = np.zeros((1, DIM), np.float32)


@pytest.mark.parametrize(
    ("vectors", "k", "message"),
    [
        (np.zeros((1, DIM - 1), np.float32), 1, "shape"),
        (np.zeros(DIM, np.float32), 1, "shape"),
        ([], 1, "shape"),
        ([[0.0] * DIM, [0.0]], 1, "rows of different lengths"),
        ([[None] * DIM], 1, "shape"),
        (np.zeros((1, DIM), bool), 1, "shape"),
        (np.zeros((1, DIM), complex), 1, "shape"),
        (np.full((1, DIM), "a"), 1, "shape"),
        (ZEROS, 0, "k is the number"),
        (ZEROS, MAX_RESULTS + 1, "k is the number"),
        (ZEROS, 2.5, "k is the number"),
        (ZEROS, True, "k is the number"),
        (ZEROS, "3", "k is the number"),
        (ZEROS, float("nan"), "k is the number"),
    ],
)
def test_bad_queries_are_refused(index, vectors, k, message):
    with pytest.raises(IndexingError, match=message):
        index.search(vectors, k)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.1e15, "beyond"), (3e38, "beyond"), (-3e38, "beyond"), (1e300, "beyond"), (-(2**63), "beyond"),
        (np.inf, "NaN or infinite"), (np.nan, "NaN or infinite"),
    ],
)  # fmt: skip
def test_values_of_vectors_are_finite_and_not_too_large(index, value, message):
    largest = index.search(np.full((1, DIM), 1e15, dtype=np.float32), 3)
    assert np.isfinite(largest[1]).all()
    query = np.zeros((1, DIM), dtype=type(value))
    query[0, -1] = value
    with pytest.raises(IndexingError, match=message):
        index.search(query, 3)


@pytest.mark.parametrize(
    "setting", [{"rescore": 0}, {"nprobe": -1}, {"ef": 2.5}, {"ef": "64"}, {"ef": True}, {"ef": None}]
)
def test_search_settings_are_whole_numbers_from_one(index, setting):
    with pytest.raises(IndexingError, match=r"search setting '\w+' is a whole number from 1; got "):
        index.search(QUERIES, 3, settings=setting)
    allowed = dict.fromkeys(setting, 1)
    assert checked_settings(allowed, "x") == allowed


def test_measurements_are_those_of_the_encoder_that_was_measured(index, monkeypatch):
    monkeypatch.setattr(index, "settings", {"ef": 64, "rescore": 2})
    monkeypatch.setattr(index, "efforts", {"a": {"search": {"ef": 16}}})
    monkeypatch.setattr(index, "matches", {"a": {"threshold": 0.5}})
    measured = SimpleNamespace(origin="a", identity="an export of a")
    assert index.effort_of(measured) == {"ef": 16, "rescore": 2}
    assert index.match_of(measured) == {"threshold": 0.5}
    assert index.effort_of(SimpleNamespace(identity="a")) == {"ef": 16, "rescore": 2}
    for other in (None, SimpleNamespace(), SimpleNamespace(origin="b", identity="a"), object()):
        assert index.effort_of(other) == {"ef": 64, "rescore": 2}
        assert index.match_of(other) is None


def test_an_index_that_does_not_know_its_model_says_what_to_give(index, monkeypatch):
    with pytest.raises(IndexingError, match="Give --encoder"):
        index.model_source()
    monkeypatch.setattr(index, "model", "models/mar")
    assert index.model_source() == "models/mar"


@pytest.mark.parametrize(
    ("similarity", "score", "possible"),
    [
        ("cosine", 1.005, True), ("cosine", -1.0, True), ("cosine", 1.02, False), ("cosine", -1.02, False),
        ("cosine", np.nan, False), ("dot", 3e38, True), ("dot", np.inf, False), ("dot", -np.inf, False),
        ("dot", np.nan, False),
    ],
)  # fmt: skip
def test_a_score_that_the_similarity_cannot_give_is_damage(similarity, score, possible):
    scores = np.array([[0.5, score]], dtype=np.float32)
    check_scores(scores, np.array([[True, False]]), similarity, "index")  # it belongs to no document
    if possible:
        check_scores(scores, np.array([[True, True]]), similarity, "index")
    else:
        with pytest.raises(IndexingError, match=f"not a possible {similarity} score.*mar verify"):
            check_scores(scores, np.array([[True, True]]), similarity, "index")
