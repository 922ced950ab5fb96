from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.spaces import agreement as module
from mar_st.spaces.agreement import agreement, mean_cosine, overlaps, ranked
from mar_st.teachers import Vectors


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(50, 6)).astype(np.float32)
    folder = write_vectors(tmp_path / "v", list(map(str, range(50))), matrix)
    return Vectors([folder], np.arange(50)), matrix


def test_ranking_equals_a_full_sort(corpus, monkeypatch):
    vectors, matrix = corpus
    queries = np.random.default_rng(1).normal(size=(7, 6)).astype(np.float32)
    whole = np.argsort(-(queries @ matrix.T), axis=1, kind="stable")
    monkeypatch.setattr(module, "BLOCK", 8)
    np.testing.assert_array_equal(ranked(queries, vectors, None, top=10), whole[:, :10])
    own = [int(row[0]) for row in whole]
    np.testing.assert_array_equal(ranked(queries, vectors, own, top=10), whole[:, 1:11])


def test_overlap_counts_common_documents(corpus):
    vectors, matrix = corpus
    teachers = matrix[:5]
    assert overlaps(teachers, teachers, vectors, None).tolist() == [1.0] * 5
    students = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32)
    tops = [set(np.argsort(-matrix @ v)[:10]) for v in (*students, *teachers)]
    expected = [len(a & b) / 10 for a, b in zip(tops[:5], tops[5:], strict=True)]
    assert overlaps(students, teachers, vectors, None).tolist() == expected
    assert np.mean(expected) < 0.9
    report = agreement({"query": students}, {"query": teachers}, vectors, None, seed=0)
    assert report["overlap_at_10"] == pytest.approx(np.mean(expected), abs=1e-4)
    low, high = report["overlap_interval"]
    assert low < report["overlap_at_10"] < high


def test_mean_cosine_ignores_lengths(corpus):
    _, matrix = corpus
    assert mean_cosine(matrix, 3 * matrix) == pytest.approx(1.0)
    expected = np.mean(
        [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(matrix, -matrix[::-1], strict=True)]
    )
    assert mean_cosine(matrix, -matrix[::-1]) == pytest.approx(expected, abs=1e-6)


def test_queries_come_first_and_a_document_does_not_find_itself(corpus):
    vectors, matrix = corpus
    encoded = {"query": np.empty((0, 6)), "document": matrix[:4] + 0.1}
    report = agreement(encoded, {"document": matrix[:4]}, vectors, [0, 1, 2, 3], seed=0)
    assert report["overlap_queries"] == "held-out documents"
    assert report["overlap_corpus"] == 50
    assert "cosine_query" not in report
    encoded["query"] = matrix[:2]
    report = agreement(encoded, {"query": matrix[:2], "document": matrix[:4]}, vectors, [0, 1, 2, 3], seed=0)
    assert (report["overlap_queries"], report["overlap_at_10"]) == ("held-out queries", 1.0)
    assert "overlap_at_10" not in agreement(
        encoded, {"query": matrix[:2], "document": matrix[:4]}, None, [], seed=0
    )


def test_a_large_corpus_is_sampled(corpus, monkeypatch):
    vectors, matrix = corpus
    monkeypatch.setattr(module, "MAX_DOCUMENTS", 20)
    encoded = {"query": np.empty((0, 6)), "document": matrix[:30]}
    report = agreement(encoded, {"document": matrix[:30]}, vectors, list(range(30)), seed=0)
    assert report["overlap_corpus"] == 20
    assert report["overlap_at_10"] == 1.0
