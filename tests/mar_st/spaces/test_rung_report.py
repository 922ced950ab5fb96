"""Tests of the report of a ladder: sizes and times of its rungs, its table and its figure."""

from __future__ import annotations

import pytest

from mar_st.spaces import rung_report
from mar_st.spaces.rung_effort import TARGET_RECALL
from mar_st.spaces.rung_report import headline, mebibytes, parameters, plot, speed, table_lines


def _row(**changes):
    row = {
        "route": "query", "tasks": {}, "agreement": {}, "p50_ms": 1.0, "per_second": 9.0, "parameters": 8,
        "parameters_without_embeddings": 4, "mib": 0.5,
    }  # fmt: skip
    return row | changes


def test_the_table_has_a_column_with_the_effort():
    rows = {
        "lookup": _row(effort={"ef": 1024, "recall@10": 0.97, "reached": False}),
        "2": _row(effort={"ef": 48, "recall@10": 0.993, "reached": True}),
    }
    about = {
        "documents": 3297,
        "queries": 1000,
        "target": TARGET_RECALL,
        "teacher": {"ef": 32, "reached": True},
    }
    lines = table_lines({"method": "m", "rungs": rows, "effort": about})
    assert [line.split()[-1] for line in lines[:3]] == ["ef", ">1024", "48"]
    assert "the teacher's own need 32" in lines[-1]
    # A report of an earlier version has none.
    earlier = table_lines({"method": "m", "rungs": {"2": _row()}})
    assert earlier[1].split()[-1] == "-"
    assert len(earlier) == 3


TASKS = {
    "a": {"metric": "ndcg@10 on a", "retention": 0.9, "interval": [0.8, 1.0]},
    "b": {"metric": "map on b", "retention": 0.7, "interval": [0.6, 0.8]},
}
AVERAGE = {"metric": "2 tasks", "retention": 0.8, "interval": [0.75, 0.85]}
OVERLAP = {"overlap_at_10": 0.6, "overlap_interval": [0.5, 0.7], "cosine_query": 0.9}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tasks": {**TASKS, "average": AVERAGE}}, ("retention of 2 tasks", 0.8, [0.75, 0.85])),
        ({"tasks": TASKS, "agreement": OVERLAP}, ("retention of ndcg@10 on a", 0.9, [0.8, 1.0])),
        ({"agreement": OVERLAP}, ("overlap@10 with the teacher", 0.6, [0.5, 0.7])),
        ({"agreement": {"cosine_query": 0.9, "overlap_interval": [0, 1]}}, ("cosine", 0.9, None)),
        ({"agreement": {"cosine_document": 0.4}}, ("cosine", 0.4, None)),
        ({}, ("retention", None, None)),
    ],
)
def test_the_average_of_tasks_stands_for_a_rung_else_what_was_measured(changes, expected):
    assert headline(_row(**changes)) == expected


def test_the_table_says_what_retention_is():
    lines = table_lines({"method": "m", "rungs": {"1": _row(tasks=TASKS), "2": _row(agreement={})}})
    assert lines[1].split()[2:6] == ["0.9000", "0.800", "to", "1.000"]
    assert lines[2].split()[2:4] == ["-", "-"]
    assert lines[-1] == "retention: ndcg@10 on a. Times: m."


def test_no_figure_is_drawn_without_retentions_or_without_matplotlib(tmp_path, monkeypatch):
    assert not plot({"rungs": {"1": _row()}}, tmp_path / "ladder.png")
    monkeypatch.setattr(rung_report, "find_spec", lambda name: None)
    assert not plot({"rungs": {"1": _row(tasks=TASKS)}}, tmp_path / "ladder.png")
    assert list(tmp_path.iterdir()) == []


def test_parameters_of_embeddings_are_counted_apart(mar):
    encoder = mar.route_modules("query")[0].model
    table = encoder.get_input_embeddings().weight.numel()
    everything = sum(weight.numel() for part in mar.route_modules("query") for weight in part.parameters())
    counted = parameters(mar)
    assert counted["parameters"] == everything
    assert counted["parameters_without_embeddings"] <= everything - table
    half = encoder.layers[0]
    assert counted["parameters_without_embeddings"] >= 2 * sum(weight.numel() for weight in half.parameters())


def test_the_size_is_that_of_the_files_of_one_route(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    before = mebibytes(tmp_path, "query")
    for folder in tmp_path.glob("query_*"):
        if (folder / "model.safetensors").is_file():
            (folder / "more").mkdir()
            (folder / "more" / "weights").write_bytes(b"x" * 2**20)
    assert mebibytes(tmp_path, "query") == pytest.approx(before + 1)
    assert mebibytes(tmp_path, "document") != mebibytes(tmp_path, "query")


class Counting:
    """A model that counts the texts of each call."""

    def __init__(self):
        self.calls = []

    def encode_queries(self, texts, **options):
        self.calls.append(len(texts))


def test_single_queries_and_batches_are_timed_apart():
    model = Counting()
    report = speed(model, ["头疼", "感冒", "发热"])
    assert set(model.calls) == {1, rung_report.BATCH_TEXTS}
    assert model.calls.count(1) == 12  # one round that does not count, and three that do
    assert 0 <= report["p50_ms"] <= report["p99_ms"]
    assert report["per_second"] > 0
