"""Verdicts of a report, and its findings as JSON."""

from __future__ import annotations

import itertools
import json

import pytest

from medteb_mteb.validate.findings import Finding, Report, Table, worst


def report(*verdicts, edition="clinic 1.0.0"):
    findings = tuple(Finding(f"check{i}", "Point", verdict, "why") for i, verdict in enumerate(verdicts))
    return Report("Task", "Retrieval", edition, "0", findings)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "ok"),
        (["ok", "ok"], "ok"),
        (["ok", "warning", "ok"], "warning"),
        (["fail", "ok", "warning"], "fail"),
    ],
)
def test_the_worst_verdict_counts_in_any_order(verdicts, expected):
    assert {worst(order) for order in itertools.permutations(verdicts)} == {expected}


def test_every_verdict_is_counted_also_one_that_no_point_has():
    counts = report("ok", "fail", "ok").counts()
    assert counts == {"ok": 2, "warning": 0, "fail": 1, "not known": 0}


@pytest.mark.parametrize(
    ("verdicts", "failed"), [(["ok", "fail"], True), (["ok", "warning", "not known"], False), ([], False)]
)
def test_only_a_point_that_fails_fails_the_report(verdicts, failed):
    assert report(*verdicts).failed is failed


def test_a_report_as_json_holds_numbers_and_tables_and_no_edition_without_a_manifest():
    table = Table(("run", "score"), (("a", "0.1"),))
    finding = Finding("size", "Size", "ok", "enough", {"queries": 12, "share": None}, table)
    content = json.loads(json.dumps(Report("T", "Reranking", "", "abc", (finding,)).to_json()))
    assert (content["task"], content["type"], content["edition"], content["revision"]) == (
        "T",
        "Reranking",
        None,
        "abc",
    )
    assert content["findings"] == [
        {
            "check": "size",
            "title": "Size",
            "verdict": "ok",
            "reason": "enough",
            "numbers": {"queries": 12, "share": None},
            "table": {"header": ["run", "score"], "rows": [["a", "0.1"]]},
        }
    ]
    assert "table" not in report("ok").to_json()["findings"][0]
    assert report().to_json()["edition"] == "clinic 1.0.0"
