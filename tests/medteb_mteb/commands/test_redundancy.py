"""`medteb redundancy` and `medteb leakage`."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def table(work):
    """Scores of six models: `b` orders them as `a`, `c` the other way round; the last has none on `c`."""
    rows = [f"m{i},{i / 10},{i / 5},{1 - i / 10 if i < 5 else ''}" for i in range(6)]
    (work / "scores.csv").write_text("\n".join(["model,a,b,c", *rows]) + "\n")
    return work


@pytest.mark.parametrize(
    ("left", "right", "models", "rho"), [("a", "b", 6, 1.0), ("a", "c", 5, -1.0), ("b , a,", "c", 5, -1.0)]
)
def test_groups_of_tasks_are_correlated(medteb, table, left, right, models, rho):
    args = ("redundancy", "scores.csv", "--left", left, "--right", right)
    code, out, err = medteb(*args)
    assert (code, err) == (0, "")
    first, second, third = out.splitlines()
    assert first == f"{models} models with scores on all, {6 - models} left out"
    assert second.startswith(f"Spearman {rho:.3f} [")
    assert third == f"Kendall {rho:.3f}"
    report = json.loads(medteb(*args, "--json")[1])
    assert (len(report["models"]), report["spearman"]) == (models, pytest.approx(rho))
    assert report["left"] == [task.strip() for task in left.split(",") if task.strip()]


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("a", "d", "No model has a score on 'd'; choose from a, b, c"),
        ("a,b", "b", "b is in both groups"),
        (" , ", "b", "Both groups need a task"),
    ],
)
def test_groups_that_cannot_be_correlated_are_refused(refused, table, left, right, message):
    assert message in refused("redundancy", "scores.csv", "--left", left, "--right", right)


@pytest.fixture
def clinic(work, retrieval_folder, write):
    """A task of three queries and six documents, and training pairs out of it."""
    retrieval_folder(work / "clinic")
    queries = [json.loads(line) for line in (work / "clinic/queries.jsonl").read_text("utf-8").splitlines()]
    documents = [json.loads(line) for line in (work / "clinic/corpus.jsonl").read_text("utf-8").splitlines()]
    near = [{"query": f"{queries[1]['text']}？", "positive": documents[1]["text"]}]
    write(work / "near.jsonl", near)
    write(work / "unjudged.jsonl", [{"query": "骨折以后怎样固定", "positive": documents[5]["text"]}])
    rows = [{"query": q["text"], "positive": d["text"]} for q, d in zip(queries, documents, strict=False)]
    write(work / "whole.jsonl", rows)
    return work


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (("whole.jsonl",), (3, 3, 3)),
        (("near.jsonl",), (1, 1, 1)),  # a mark at the end does not tell queries apart
        (("unjudged.jsonl",), (0, 0, 0)),
        (("unjudged.jsonl", "near.jsonl", "near.jsonl"), (1, 1, 1)),
    ],
)
def test_queries_and_relevant_documents_are_looked_for(medteb, clinic, training, expected):
    args = ("leakage", "clinic", *(part for file in training for part in ("--training", file)))
    code, out, err = medteb(*args)
    assert (code, err) == (0, "")
    equal, near, documents = expected
    assert out.splitlines()[:2] == [
        f"queries: 3, of which equal {equal}, near-duplicates {near}",
        f"relevant documents: 3, of which equal {documents}",
    ]
    assert len(out.splitlines()) == 2 + near
    report = json.loads(medteb(*args, "--json")[1])
    assert (report["equal"], report["near"], report["equal_documents"]) == expected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("clinic",), "Missing option '--training'"),
        (("clinic", "--training", "gone.jsonl"), "gone.jsonl"),
        (("gone", "--training", "whole.jsonl"), "gone: no such folder"),
    ],
)
def test_unusable_input_is_refused(refused, clinic, args, message):
    assert message in refused("leakage", *args)
