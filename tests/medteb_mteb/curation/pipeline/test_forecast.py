"""Tests that the forecast of a build is right whatever the state of its steps."""

from __future__ import annotations

import json

import pytest
import rule_judges

from medteb_mteb.curation import pipeline as building

BOTH = {"queries": "queries", "documents": "documents"}
CLEAN = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "documents", "in": "documents.jsonl"},
]
POOL = {"step": "pool", **BOTH, "retrievers": ["bm25"], "size": 8}
JUDGE = {"step": "judge", **BOTH, "pools": "pool"}
LABELS = {"step": "consensus", "name": "labels", "in": "judge"}
ASSEMBLE = {"step": "assemble", "labels": "labels", **BOTH, "edition": "e", "licence": "mit", "test": 0.4,
            "small": True}  # fmt: skip
ASKED = {"step": "synthesize-queries", "name": "asked", "shortest": 5}


def planned(path, name, **options):
    return next(step for step in building.forecast(path, **options).steps if step.name == name)


def test_two_columns_of_one_file_are_two_inputs(write, tmp_path):
    rows = [
        {"_id": str(i), "question": "感冒了怎么办" * 2, "answer": "多休息，多喝水。" * 40} for i in range(5)
    ]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = [
        {**CLEAN[0], "in": "qa.jsonl", "columns": {"text": "question"}},
        {**CLEAN[1], "in": "qa.jsonl", "columns": {"text": "answer"}},
    ]
    path = write(steps=steps)
    volumes = {step.name: step.writes for step in building.forecast(path).steps}
    assert (volumes["queries"].tokens, volumes["documents"].tokens) == (5 * 12, 5 * 320)


@pytest.mark.thorough
def test_a_missing_file_inside_a_step_is_estimated(write, quiet, endpoint):
    inside = {**ASKED, "documents": "assemble/MedTEBRetrieval/corpus.jsonl"}
    with rule_judges.serving(endpoint) as url:
        llm = {"name": "asker", "model": "rule-questions", "base_url": url}
        path = write(
            url, steps=[*CLEAN, POOL, JUDGE, LABELS, ASSEMBLE, inside], llm=llm, already_anonymous=True
        )
        before = planned(path, "asked").charges[0]
        quiet(path, until="assemble")
        exact, known = planned(path, "asked").charges[0], endpoint.requests
        quiet(path)
    assert (before.exact, exact.exact) == (False, True)
    assert before.requests >= exact.requests == endpoint.requests - known > 0


def test_editions_that_nothing_may_come_near_to_are_not_counted_as_texts(write, retrieval_folder, tmp_path):
    retrieval_folder(tmp_path / "held-out", candidates=["d0", "d1"])
    llm = {"name": "sorter", "model": "rule-sorter", "base_url": "http://127.0.0.1:9/v1"}
    steps = [*CLEAN, POOL, {"step": "triples", **BOTH, "pools": "pool", "against": ["held-out"]}]
    assert planned(write(steps=steps, llm=llm), "triples").charges[0].requests > 0


@pytest.mark.thorough
def test_failed_requests_count_if_they_are_retried(write, quiet, endpoint, monkeypatch):
    step = {**ASKED, "documents": "documents"}
    with rule_judges.serving(endpoint) as url:
        llm = {"name": "asker", "model": "rule-questions", "base_url": url, "unreadable": None}
        path = write(
            url, steps=[*CLEAN, POOL, JUDGE, step], llm=llm, judge={"max_failed": 1.0, "unreadable": None}
        )
        answer = rule_judges.ANSWERS["rule-questions"]
        unread = iter([False])  # the first document gets queries; a step without any is an error
        monkeypatch.setitem(rule_judges.ANSWERS, "rule-words", lambda messages: "我不知道")
        monkeypatch.setitem(
            rule_judges.ANSWERS,
            "rule-questions",
            lambda messages: "我不知道" if next(unread, True) else answer(messages),
        )
        assert quiet(path).complete
        for name in ("judge", "asked"):
            assert planned(path, name).fate == "finished"
            assert planned(path, name).charges == ()
            again = planned(path, name, retry_failed=True)
            assert again.fate == "to do"
            assert sum(charge.requests for charge in again.charges) > 0


def test_the_cost_of_texts_of_many_lengths_is_not_called_a_bound(medteb, write):
    code, out, _ = medteb("build", write(steps=[*CLEAN, POOL, JUDGE]), "--dry-run")
    assert code == 0
    assert "pool: at most 288 pairs" in out
    assert "in all about 108 requests" in out
    assert "texts of the mean length" in out
