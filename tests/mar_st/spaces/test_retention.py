"""Tests of the share of its teacher's quality that a query encoder keeps on judged queries."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.spaces import SpaceError
from mar_st.spaces.retention import JudgedTasks, load_tasks

DIM = 16


class Vectors:
    """A space with a fixed unit vector for each text."""

    def __init__(self, find=True):
        self.find, self.known = find, {}

    def unit(self, text):
        rng = np.random.default_rng(len(self.known))
        vector = self.known.setdefault(text, rng.normal(size=DIM).astype(np.float32))
        return vector / np.linalg.norm(vector)

    def documents(self, texts):
        return np.stack([self.unit(text) for text in texts])

    def vectors(self, texts, role):
        assert role == "query"
        vectors = np.stack([self.unit(text) for text in texts])
        return vectors if self.find else np.zeros_like(vectors)


@pytest.fixture
def tasks(make_folder):
    return load_tasks([str(make_folder("Retrieval", "one")), str(make_folder("Reranking", "two"))], "test")


def test_a_task_is_named_after_its_folder(make_folder):
    folders = [make_folder("Retrieval", name) for name in ("My_Data.v2", "医学", "-x-")]
    assert [data.task.name for data in load_tasks(list(map(str, folders)), "test")] == [
        "my-data-v2",
        "task",
        "x",
    ]


def test_tasks_that_cannot_be_measured_are_refused(make_folder, tmp_path):
    folder = str(make_folder("Retrieval", "one"))
    with pytest.raises(SpaceError, match="takes retrieval and reranking tasks"):
        load_tasks([folder, str(make_folder("STS"))], "test")
    with pytest.raises(SpaceError, match="names two tasks 'one'; rename"):
        load_tasks([folder, str(make_folder("Reranking", "deeper/one"))], "test")
    with pytest.raises(MarError, match="No task at"):
        load_tasks([str(tmp_path / "none")], "test")


def test_a_task_is_not_overwritten_by_the_average_of_all(make_folder):
    folders = [str(make_folder("Retrieval", name)) for name in ("Average", "one")]
    assert [data.task.name for data in load_tasks(folders[:1], "test")] == ["average"]
    with pytest.raises(SpaceError, match=r"Average: the report calls the mean .* rename the folder"):
        load_tasks(folders, "test")


def test_the_teachers_own_vectors_keep_all_of_its_quality(tasks):
    judged = JudgedTasks.of(tasks, Vectors(), seed=0)
    report = judged.report(judged.taught)
    assert list(report) == ["one", "two", "average"]
    for entry in report.values():
        assert entry["score"] == entry["teacher"] > 0
        assert (entry["retention"], entry["interval"]) == (1.0, [1.0, 1.0])


def test_retention_is_the_score_over_that_of_the_teacher(tasks):
    judged = JudgedTasks.of(tasks, Vectors(), seed=0)
    rng = np.random.default_rng(5)
    report = judged.report([rng.normal(size=taught.shape) for taught in judged.taught])
    assert report["one"]["score"] != report["one"]["teacher"]
    for entry in report.values():
        assert entry["retention"] == pytest.approx(entry["score"] / entry["teacher"], abs=2e-4)
        low, high = entry["interval"]
        assert low <= entry["retention"] <= high
        assert low < high
    for name in ("score", "teacher"):
        mean = (report["one"][name] + report["two"][name]) / 2
        assert report["average"][name] == pytest.approx(mean, abs=1e-5)
    assert report["average"]["queries"] == report["one"]["queries"] + report["two"]["queries"] == 6
    assert report["average"]["metric"] == "ndcg@10, map"


def test_of_a_teacher_that_finds_nothing_no_share_is_kept(make_folder):
    tasks = load_tasks([str(make_folder("Retrieval", "one"))], "test")
    judged = JudgedTasks.of(tasks, Vectors(), seed=0)
    judged.teacher[0].values[:] = 0
    report = judged.report(judged.taught)
    assert list(report) == ["one"]
    assert report["one"]["score"] > report["one"]["teacher"] == 0
    assert report["one"]["retention"] is report["one"]["interval"] is None


def test_queries_are_encoded_by_task(tasks, mar):
    judged = JudgedTasks.of(tasks, Vectors(), seed=0)
    first, second = judged.queries(mar)
    np.testing.assert_allclose(first, mar.encode_queries(list(tasks[0].queries.values())), atol=1e-6)
    assert len(second) == len(tasks[1].queries)
