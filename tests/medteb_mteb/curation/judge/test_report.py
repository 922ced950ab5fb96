"""The report of a judging."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.export import Outcome
from medteb_mteb.curation.judge.report import JudgeReport, JudgeResult, finished

GRADES = {"S": 3, "A": 2, "B": 0, "C": 1, "D": 4}


@pytest.fixture
def result():
    outcome = Outcome(dict(GRADES), Counter({"refused": 2, "letter": 1}), left=5)
    account = JudgeAccount(7, 100, 10, 0.5, 0, 3, 1)
    return JudgeResult("one", outcome, 4, 9, account, {"asked_again": 2, "faults": {"timeout": 1}})


def test_a_report_is_json_with_the_numbers_of_every_judge(result):
    report = JudgeReport(Path("out"), Path("journal"), 18, (result,), complete=False, notes=("a note",))
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert (content["pairs"], content["complete"], content["notes"]) == (18, False, ["a note"])
    (judge,) = content["judges"]
    assert judge["grades"] == GRADES
    assert judge["failed"] == {"letter": 1, "refused": 2}
    assert sum(judge["grades"].values()) + sum(judge["failed"].values()) + judge["left"] == 18
    assert (judge["bought"], judge["known"], judge["asked_again"]) == (4, 9, 2)
    assert (judge["paid"]["cost"], judge["paid"]["controls"], judge["paid"]["controls_failed"]) == (0.5, 3, 1)
    assert judge["faults"] == {"timeout": 1}


@pytest.mark.parametrize("stopped", ["", "its budget is spent"])
def test_a_judge_that_was_stopped_says_why(stopped):
    content = JudgeResult("one", Outcome(), stopped=stopped).to_json()
    assert content.get("stopped", "") == stopped
    assert ("stopped" in content) is bool(stopped)


def test_a_finished_folder_is_reported_from_its_manifest(result):
    manifest = {"pairs": 13, "judges": {"one": json.loads(json.dumps(result.outcome.to_json()))}}
    report = finished(Path("out"), Path("journal"), manifest)
    assert (report.folder, report.journal, report.pairs, report.complete) == (
        Path("out"),
        Path("journal"),
        13,
        True,
    )
    (again,) = report.judges
    assert (again.name, again.bought, again.known) == ("one", 0, 13)
    assert again.outcome.to_json() == manifest["judges"]["one"]
    again.outcome.grades["S"] += 1
    assert manifest["judges"]["one"]["grades"]["S"] == 3


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"pairs": 1},
        {"pairs": 1, "judges": ["one"]},
        {"pairs": 1, "judges": {"one": None}},
        {"pairs": 1, "judges": {"one": {"grades": {"S": 1}}}},
        {"pairs": 1, "judges": {"one": {"grades": {"S": "1"}, "failed": {}}}},
        {"pairs": 1, "judges": {"one": {"grades": [1], "failed": {}}}},
        {"pairs": 1, "judges": {"one": {"grades": {}, "failed": {"refused": "2"}}}},
    ],
)
def test_a_manifest_without_the_numbers_of_the_judges_is_refused(manifest):
    with pytest.raises(BuildError, match=r"out/manifest\.json is damaged .*the journal holds all answers"):
        finished(Path("out"), Path("journal"), manifest)
