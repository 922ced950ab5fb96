from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from mar_st.index import flat
from mar_st.index.vectors import LADDERS
from mar_st.spaces import rung_effort
from mar_st.spaces.rung_effort import graph_of
from tests.mar_st.index.conftest import clustered, one_faiss_thread  # noqa: F401 -- fixture


@pytest.fixture(scope="module")
def documents():
    return clustered(4000, 32)


def near(count):
    return clustered(count, 32, seed=7)


def far(count):
    drawn = np.random.default_rng(3).standard_normal((count, 32))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_the_effort_is_the_least_that_finds_the_exact_neighbours(documents, monkeypatch):
    monkeypatch.setattr(rung_effort, "TARGET_RECALL", 0.999)
    queries = far(150)
    exact = flat.search(queries, documents, 10)[1]
    with graph_of([documents[:2500], documents[2500:]]) as graph:
        report = graph.effort([queries[:100], queries[100:]])
        assert report["reached"]
        steps = [step["ef"] for step in LADDERS["hnsw"]]
        assert report["ef"] > steps[0]
        shares = []
        for ef in (steps[steps.index(report["ef"]) - 1], report["ef"]):
            rows = graph.searchable.search(queries, 10, {"ef": ef})[1]
            shares.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows, exact, strict=True)]))
        assert shares[0] < 0.999 <= shares[1]
        assert report["recall@10"] == pytest.approx(shares[1], abs=1e-4)
        about = graph.about([near(80)])
    assert about["documents"] == 4000
    assert about["queries"] == 80
    assert about["teacher"]["ef"] <= report["ef"]


def test_equal_documents_count_once_and_large_sets_are_sampled(documents, monkeypatch):
    few = documents[:50]
    with graph_of([few, few[:20]]) as graph:
        np.testing.assert_array_equal(graph.vectors, few)
        assert graph.effort([near(5)])["recall@10"] == 1.0
    monkeypatch.setattr(rung_effort, "MAX_DOCUMENTS", 11)
    monkeypatch.setattr(rung_effort, "MAX_QUERIES", 3)
    with graph_of([few]) as graph:
        np.testing.assert_array_equal(graph.vectors[[0, -1]], few[[0, -1]])
        assert len(graph.vectors) == 11
        assert graph.about([near(5)])["queries"] == 3


def test_there_is_no_effort_without_documents_or_faiss(documents, monkeypatch):
    with graph_of([]) as graph:
        assert graph is None
    original = importlib.util.find_spec
    monkeypatch.setattr(rung_effort, "find_spec", lambda name: None if name == "faiss" else original(name))
    with graph_of([documents]) as graph:
        assert graph is None
