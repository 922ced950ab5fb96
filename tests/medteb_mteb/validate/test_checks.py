"""All points of a validation together."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.editions import write_manifest
from medteb_mteb.validate import CHECKS, Sources, read_material, validate


@pytest.fixture
def validated(folder):
    def call(**sources):
        return validate(read_material(folder, Sources(**sources)))

    return call


def test_every_point_has_a_verdict_and_a_reason_in_the_order_of_the_page(validated, folder):
    report = validated()
    material = read_material(folder, Sources())
    assert list(report.findings) == [check(material) for check in CHECKS]
    assert len({finding.check for finding in report.findings}) == len(CHECKS)
    assert all(finding.reason for finding in report.findings)
    json.dumps(report.to_json(), allow_nan=False)


def test_a_report_names_the_edition_only_if_there_is_a_manifest(validated, folder):
    report = validated()
    assert (report.name, report.kind, report.edition) == ("clinic", "Retrieval", "")
    write_manifest(folder, task="clinic", name="first", version="2.1", licence="cc-by-4.0", counts={"q": 12})
    assert validated().edition == "first 2.1"
    verdicts = [
        next(one.verdict for one in r.findings if one.check == "files") for r in (report, validated())
    ]
    assert verdicts == ["not known", "ok"]


def test_changed_data_are_another_revision(validated, add):
    before = validated().revision
    assert validated().revision == before
    add("qrels/test.tsv", "q0\tn0\t1")
    assert validated().revision != before


def test_a_broken_row_fails_its_point_and_the_others_are_still_judged(validated, add):
    before = {finding.check: finding for finding in validated().findings}
    add("queries.jsonl", "{broken")
    after = validated()
    assert after.failed
    assert [finding.check for finding in after.findings if before[finding.check] != finding] == ["rows"]
    assert before["rows"].verdict == "ok"
    assert after.counts()["fail"] == sum(one.verdict == "fail" for one in before.values()) + 1
