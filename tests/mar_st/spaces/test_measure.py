from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.spaces import measure as module
from mar_st.spaces.measure import (
    agreement,
    load_tasks,
    ranked,
    table_lines,
    task_scores,
)
from mar_st.teachers import Vectors


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(50, 6)).astype(np.float32)
    folder = write_vectors(tmp_path / "v", list(map(str, range(50))), matrix)
    return Vectors([folder], np.arange(50)), matrix


def test_ranking_equals_a_full_sort(corpus):
    _, matrix = corpus
    queries = np.random.default_rng(1).normal(size=(7, 6)).astype(np.float32)
    whole = np.argsort(-(queries @ matrix.T), axis=1, kind="stable")
    np.testing.assert_array_equal(ranked(queries, matrix, None, top=10), whole[:, :10])
    own = [int(row[0]) for row in whole]
    np.testing.assert_array_equal(ranked(queries, matrix, own, top=10), whole[:, 1:11])


def test_agreement_is_cosine_and_common_documents(corpus):
    vectors, matrix = corpus
    teachers = matrix[:5]
    students = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32)
    tops = [set(np.argsort(-matrix @ v)[:10]) for v in (*students, *teachers)]
    expected = [len(a & b) / 10 for a, b in zip(tops[:5], tops[5:], strict=True)]
    assert np.mean(expected) < 0.9
    report = agreement({"query": students}, {"query": teachers}, vectors, [], seed=0)
    assert report["overlap_at_10"] == pytest.approx(np.mean(expected), abs=1e-4)
    low, high = report["overlap_interval"]
    assert low < report["overlap_at_10"] < high
    angles = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(students, teachers, strict=True)]
    assert report["cosine_query"] == pytest.approx(np.mean(angles), abs=1e-4)
    same = agreement({"query": 3 * teachers}, {"query": teachers}, vectors, [], seed=0)
    assert (same["cosine_query"], same["overlap_at_10"]) == (1.0, 1.0)


def test_queries_come_first_and_a_document_does_not_find_itself(corpus):
    vectors, matrix = corpus
    encoded = {"document": matrix[:4] + 0.1}
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
    encoded = {"document": matrix[:30]}
    report = agreement(encoded, {"document": matrix[:30]}, vectors, list(range(30)), seed=0)
    assert report["overlap_corpus"] == 20
    assert report["overlap_at_10"] == 1.0


DIM = 16


class Fixed:
    """A space with a fixed unit vector for each text."""

    def __init__(self):
        self.known = {}

    def unit(self, text):
        rng = np.random.default_rng(len(self.known))
        vector = self.known.setdefault(text, rng.normal(size=DIM).astype(np.float32))
        return vector / np.linalg.norm(vector)

    def documents(self, texts):
        return np.stack([self.unit(text) for text in texts])

    def vectors(self, texts, role):
        assert role == "query"
        return self.documents(texts)


@pytest.fixture
def tasks(make_folder):
    return load_tasks([str(make_folder("Retrieval", "one")), str(make_folder("Reranking", "two"))])


def test_a_task_is_named_after_its_folder(make_folder):
    folders = [make_folder("Retrieval", name) for name in ("My_Data.v2", "医学", "-x-")]
    assert [data.task.name for data in load_tasks(list(map(str, folders)))] == [
        "my-data-v2",
        "task",
        "x",
    ]


def test_tasks_that_cannot_be_measured_are_refused(make_folder, tmp_path):
    folder = str(make_folder("Retrieval", "one"))
    with pytest.raises(MarError, match="takes retrieval and reranking tasks"):
        load_tasks([folder, str(make_folder("STS"))])
    with pytest.raises(MarError, match="names two tasks 'one'; rename"):
        load_tasks([folder, str(make_folder("Reranking", "deeper/one"))])
    with pytest.raises(MarError, match="No task at"):
        load_tasks([str(tmp_path / "none")])


class Encoder:
    """A query encoder that gives the vectors of a function of the text."""

    def __init__(self, vector):
        self.vector = vector

    def encode_queries(self, texts):
        return np.stack([self.vector(text) for text in texts])


def test_the_teachers_own_vectors_keep_all_of_its_quality(tasks):
    space = Fixed()
    report = task_scores(Encoder(space.unit), tasks, space, seed=0)
    assert list(report) == ["one", "two"]
    for entry in report.values():
        assert entry["score"] == entry["teacher"] > 0
        assert (entry["retention"], entry["interval"]) == (1.0, [1.0, 1.0])


def test_retention_is_the_score_over_that_of_the_teacher(tasks):
    rng = np.random.default_rng(5)
    report = task_scores(Encoder(lambda text: rng.normal(size=DIM)), tasks, Fixed(), seed=0)
    assert report["one"]["score"] != report["one"]["teacher"]
    for entry in report.values():
        assert entry["retention"] == pytest.approx(entry["score"] / entry["teacher"], abs=2e-4)
        low, high = entry["interval"]
        assert low <= entry["retention"] <= high
        assert low < high


def test_a_table_gives_scores_first_and_says_what_is_no_measure_of_search():
    row = {
        "route": "query", "agreement": {"cosine_query": 0.9, "overlap_at_10": 0.5}, "tasks": {},
        "p50_ms": 1.0, "per_second": 99.0, "mib": 1.5, "parameters": 100,
    }  # fmt: skip
    report = {"rungs": {"1": row, "2": row}, "method": "by hand"}
    without = table_lines(report)
    assert [line.split()[:4] for line in without[1:3]] == [[rung, "query", "0.900", "0.500"] for rung in "12"]
    assert "no measure of search" in without[3]
    assert "--eval" in without[4]
    task = {"metric": "ndcg@10", "queries": 9, "teacher": 0.5, "score": 0.45, "retention": 0.9,
            "interval": [0.8, 1.0]}  # fmt: skip
    report["rungs"] = {rung: row | {"tasks": {"one": task}} for rung in "12"}
    lines = table_lines(report)
    assert lines[0].startswith("one: ndcg@10 of 9 queries")
    assert lines[1].split()[:3] == ["1", "0.4500", "90.0%"]
    assert lines[4:] == without[:4]
