"""Tests of recall against exact search, and of the settings that are chosen by it."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import source as sources
from mar_st.index.tune import (
    MAX_RECALL_QUERIES,
    ExactResults,
    calibrate,
    exact_results,
    made_queries,
    recall,
)
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import COUNT, DIM, built, many, rows_of


@pytest.fixture(scope="module")
def source():
    return many()


def test_recall_is_that_of_brute_force(source, tmp_path):
    exact = built(tmp_path / "exact", source, "exact", {})
    expected = exact_results(source, None)
    vectors = source.take(np.arange(COUNT))
    scores = expected.queries @ vectors.T
    assert (np.argsort(-scores, axis=1)[:, :10] == expected.rows).all()
    assert recall(exact, expected, {}) == 1
    rough = built(tmp_path / "rough", source, "binary", {})
    assert 0.05 < recall(rough, expected, {"rescore": 1}) < 0.9


def test_made_queries_are_near_documents_but_equal_to_none(source):
    made, vectors = made_queries(source), source.take(np.arange(COUNT))
    assert made.shape == (MAX_RECALL_QUERIES, DIM)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)  # as long as those they come from
    best = np.sort(made @ vectors.T, axis=1)[:, ::-1]
    of_documents = np.sort(vectors[:MAX_RECALL_QUERIES] @ vectors.T, axis=1)[:, ::-1]
    assert best[:, 0].max() < 0.99 < of_documents[:, 0].min()  # of a document itself
    assert best[:, 1].mean() < of_documents[:, 1].mean()
    assert best[:, 9].mean() > best.mean() + 0.3  # but beside documents
    assert (made_queries(source) == made).all()
    one = rows_of(vectors[:1])
    np.testing.assert_allclose(made_queries(one), vectors[:1], atol=1e-6)


def test_exact_results_do_not_depend_on_the_size_of_a_block(monkeypatch):
    source, queries = rows_of(clustered(500, DIM)), clustered(8, DIM, seed=5)
    whole = exact_results(source, queries)
    monkeypatch.setattr(sources, "VECTORS_PER_READ", 64)
    monkeypatch.setattr("mar_st.index.tune.VECTORS_PER_READ", 64)
    np.testing.assert_array_equal(exact_results(source, queries).rows, whole.rows)


class Stepwise:
    """Finds as many of the exact results as its setting says."""

    def __init__(self, exact):
        self.exact, self.asked = exact, []

    def search(self, queries, k, *, settings):
        self.asked.append(settings["found"])
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        rows[:, : settings["found"]] = self.exact[:, : settings["found"]]
        return np.zeros(rows.shape, dtype=np.float32), rows


LADDER = tuple({"found": count} for count in (2, 5, 8))


@pytest.mark.parametrize(
    ("target", "found", "reached", "asked"),
    [(0.2, 2, True, [2]), (0.5, 5, True, [2, 5]), (0.6, 8, True, [2, 5, 8]), (0.9, 8, False, [2, 5, 8])],
)
def test_the_first_step_that_reaches_the_target_is_chosen(target, found, reached, asked):
    exact = np.arange(40).reshape(4, 10)
    searched = Stepwise(exact)
    measured = calibrate(searched, ExactResults(np.zeros((4, 3), np.float32), exact), target, LADDER)
    assert measured == {"search": {"found": found}, "recall@10": found / 10, "reached": reached}
    assert searched.asked == asked


def test_recall_counts_only_the_exact_results_there_are():
    """With four vectors, six of the ten places are empty."""
    exact = np.full((2, 10), -1)
    exact[:, :4] = np.arange(4)
    expected = ExactResults(np.zeros((2, 3), np.float32), exact)
    assert recall(Stepwise(exact), expected, {"found": 4}) == 1
    assert recall(Stepwise(exact), expected, {"found": 1}) == 0.25
    nothing = ExactResults(expected.queries, np.full((2, 10), -1))
    assert recall(Stepwise(exact), nothing, {"found": 4}) == 0
