"""The rows and files of a synthesis, and the reports of finished and stopped runs."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace

import pytest

from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.synthetic.report import (
    DROPPED_FILE,
    FAILED_FILE,
    SynthesisRows,
    finished,
    reported,
    written,
)
from medteb_mteb.curation.training.leaks import HeldOut

IDENTITY = {"step": "queries", "settings": {"seed": 42}}


@pytest.fixture
def rows():
    gathered = SynthesisRows(kept=[{"query": "痛风能喝酒吗\u2028？"}, {"query": "胃炎吃什么药？"}])
    gathered.drop({"query": "痛？"}, "too-short")
    gathered.drop({"query": "痛风可以喝酒吗？"}, "near-identical", "痛风能喝酒吗？")
    gathered.drop({"query": "？"}, "too-short")
    gathered.failed += [{"document-id": "d7", "reason": "no-json"}]
    gathered.uncounted.update({"too-short": 2, "no-text": 1})
    gathered.details["suspicious"] = 1
    return gathered


def asking(**changes):
    counts = {"failed": {"no-json": 1}, "known": 2, "bought": 3, "faults": {"429": 4}, "stopped": ""}
    return SimpleNamespace(**{**counts, "account": Account(answers=5, cost=0.25), **changes})


def test_dropped_texts_have_a_reason_and_are_counted_with_those_without_a_row(rows):
    assert rows.dropped == [
        {"query": "痛？", "reason": "too-short"},
        {"query": "痛风可以喝酒吗？", "reason": "near-identical", "detail": "痛风能喝酒吗？"},
        {"query": "？", "reason": "too-short"},
    ]
    assert list(rows.reasons().items()) == [("near-identical", 1), ("no-text", 1), ("too-short", 4)]


def test_rows_near_a_query_of_a_test_are_dropped_with_its_name():
    rows = SynthesisRows(
        kept=[{"query": text} for text in ("胃炎吃什么药？", "痛风能喝酒吗？", "湿疹传染吗？")]
    )
    rows.keep_away(HeldOut(("痛风能喝酒吗",), ("test.jsonl:t1",)))
    assert [row["query"] for row in rows.kept] == ["胃炎吃什么药？", "湿疹传染吗？"]
    assert rows.dropped == [
        {"query": "痛风能喝酒吗？", "reason": "test-query", "detail": "test.jsonl:t1 1.0000"}
    ]
    rows.keep_away(HeldOut())
    assert len(rows.kept) == 2


def test_the_manifest_counts_and_digests_the_files(rows, rows_of, tmp_path):
    written(
        tmp_path, "pairs.jsonl", IDENTITY, rows, read=4, files={"tasks.jsonl": [{"task": "a"}]}, more={"n": 1}
    )
    assert rows_of(tmp_path / DROPPED_FILE) == rows.dropped
    assert rows_of(tmp_path / FAILED_FILE) == rows.failed
    lines = (tmp_path / "pairs.jsonl").read_bytes().split(b"\n")[:-1]
    assert [json.loads(line) for line in lines] == rows.kept
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    digests = manifest.pop("files")
    assert manifest == {
        **IDENTITY,
        "n": 1,
        "read": 4,
        "kept": 2,
        "dropped": rows.reasons(),
        "failed": {"no-json": 1},
        "details": {"suspicious": 1},
        "before": [],
    }
    names = {"pairs.jsonl", "tasks.jsonl", DROPPED_FILE, FAILED_FILE}
    assert digests == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names}


def test_an_interrupted_rewrite_leaves_no_manifest(rows, tmp_path):
    written(tmp_path, "pairs.jsonl", IDENTITY, rows, read=4)

    def interrupted():
        yield {"task": "a"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, "pairs.jsonl", IDENTITY, rows, read=4, files={"tasks.jsonl": interrupted()})
    assert not (tmp_path / "manifest.json").exists()


def test_a_finished_folder_reports_what_its_run_reported_but_no_requests(rows, tmp_path):
    written(tmp_path, "pairs.jsonl", IDENTITY, rows, read=4)
    journal = tmp_path / "answers.sqlite"
    first = reported(tmp_path, journal, "pairs.jsonl", rows, asking(), ["a note"])
    again = finished(tmp_path, journal, "pairs.jsonl")
    for name in ("rows", "journal", "kept", "dropped", "failed", "details", "complete"):
        assert getattr(again, name) == getattr(first, name), name
    assert (first.known, first.bought, first.account.cost) == (2, 3, 0.25)
    assert (again.known, again.bought, again.account, again.notes) == (0, 0, Account(), ())


def test_the_report_of_a_stopped_run_says_why(rows, tmp_path):
    def report(stopped):
        told = asking(stopped=stopped)
        reported(tmp_path, tmp_path / "a.sqlite", "pairs.jsonl", rows, told, ["a note"])
        return json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))

    stopped, complete = report("the budget is spent"), report("")
    assert (stopped["complete"], stopped.pop("stopped")) == (False, "the budget is spent")
    assert stopped == {**complete, "complete": False}
    assert complete["suspicious"] == 1  # the details are entries of the report
    assert complete["paid"]["answers"] == 5
    assert (complete["faults"], complete["notes"]) == ({"429": 4}, ["a note"])
