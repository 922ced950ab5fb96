from __future__ import annotations

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.spaces.measure import load_tasks, table_lines, task_scores

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
    assert [data.task.name for data in load_tasks(list(map(str, folders)))] == ["my-data-v2", "task", "x"]


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
        "route": "query", "agreement": {"cosine_query": 0.9}, "tasks": {},
        "p50_ms": 1.0, "per_second": 99.0, "mib": 1.5, "parameters": 100,
    }  # fmt: skip
    report = {"rungs": {"1": row, "2": row}, "method": "by hand"}
    without = table_lines(report)
    assert [line.split()[:3] for line in without[1:3]] == [[rung, "query", "0.900"] for rung in "12"]
    assert "no measure of search" in without[3]
    assert "--eval" in without[4]
    task = {"metric": "ndcg@10", "queries": 9, "teacher": 0.5, "score": 0.45, "retention": 0.9,
            "interval": [0.8, 1.0]}  # fmt: skip
    report["rungs"] = {rung: row | {"tasks": {"one": task}} for rung in "12"}
    lines = table_lines(report)
    assert "one ndcg@10" in lines[0]
    assert "of the teacher's 0.5000" in lines[0]
    assert lines[1].split()[:4] == ["1", "query", "0.4500", "90.0%"]
    assert len(lines) == 4
