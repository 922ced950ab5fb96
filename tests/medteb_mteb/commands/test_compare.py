"""`medteb compare`: forms of the output, and the check that nothing became worse."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.medteb_mteb.compare.results import write_result


@pytest.fixture
def results(tmp_path):
    """Two good systems that are alike, and one that is worse on one of two tasks."""
    rng = np.random.default_rng(0)
    for task in ("One_Task", "Two"):
        base = rng.uniform(0.4, 0.6, 60)
        write_result(tmp_path / "out", "new", task, base + rng.normal(0, 0.1, 60))
        write_result(tmp_path / "out", "old", task, base + rng.normal(0, 0.1, 60))
        worse = base - 0.2 if task == "Two" else base
        write_result(tmp_path / "out", "weak", task, worse + rng.normal(0, 0.1, 60))
    return tmp_path / "out"


def test_json_has_all_that_was_compared(medteb, results):
    code, out, _ = medteb("compare", results, "--json")
    content = json.loads(out)
    assert code == 0
    assert {one["task"]: one["tie_groups"]["weak"] for one in content["compared"]} == {
        "One_Task": 1, "Two": 2, "average": 2,
    }  # fmt: skip
    assert len(content["pairs"]) == 9
    weak = next(
        pair
        for pair in content["pairs"]
        if {pair["first"], pair["second"]} == {"old", "weak"} and pair["task"] == "Two"
    )
    assert weak["low"] < weak["difference"] < weak["high"]
    assert weak["wins"] + weak["ties"] + weak["losses"] == 60
    assert weak["p after Holm"] >= weak["p"]


def test_every_form_has_the_same_pairs(medteb, results):
    rows = list(csv.DictReader(io.StringIO(medteb("compare", results, "--csv")[1])))
    assert {row["task"] for row in rows} == {"One_Task", "Two", "average"}
    shown = f"{float(rows[0]['difference']):+.4f}"
    for form in ((), ("--markdown",), ("--latex",)):
        code, out, _ = medteb("compare", results, *form)
        assert code == 0
        assert shown in out
    assert r"One\_Task" in out
    assert medteb("compare", results, "--latex", "--csv")[0] == 2


def test_a_worse_system_fails_with_a_junit_file(medteb, results, tmp_path):
    junit = tmp_path / "compare.xml"
    code, out, _ = medteb("compare", results, "--fail-if-worse", "old", "--junit", junit)
    assert code == 1
    assert "worse than old: weak on Two" in out
    suite = ET.parse(junit).getroot()
    failed = [(case.get("name"), case.get("classname")) for case in suite if case.find("failure") is not None]
    assert failed == [("weak", "Two"), ("weak", "average")]
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2")


def test_the_same_or_a_better_system_passes(medteb, results):
    code, out, _ = medteb("compare", results, "--fail-if-worse", "weak")
    assert (code, "worse than" in out) == (0, False)


def test_a_check_that_cannot_fail_is_refused(medteb, results, tmp_path):
    write_result(results, "alone", "Other", 0.5)
    assert medteb("compare", results, "--fail-if-worse", "alone")[0] == 2
    assert medteb("compare", results, "--fail-if-worse", "absent")[0] == 2
    assert medteb("compare", results, "--junit", tmp_path / "x.xml")[0] == 2
    assert medteb("compare", results, "--baseline", "old", "--fail-if-worse", "old")[0] == 2
