from __future__ import annotations

import json
from html import escape

import pytest

from medteb_mteb.validate import (
    CHECKS,
    Finding,
    Report,
    Sources,
    Table,
    read_material,
    to_html,
    to_markdown,
    validate,
)


@pytest.fixture
def report(folder):
    return validate(read_material(folder, Sources()))


def test_every_point_has_a_verdict_and_a_reason(report):
    assert len(report.findings) == len(CHECKS) == len({finding.check for finding in report.findings})
    assert all(finding.reason for finding in report.findings)
    assert sum(report.counts().values()) == len(CHECKS)
    for page, written in ((to_markdown(report), str), (to_html(report), escape)):
        assert all(written(finding.title) in page for finding in report.findings)
        assert report.revision in page
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [row["check"] for row in content["findings"]] == [finding.check for finding in report.findings]


def test_pages_hold_no_text_of_the_data(report, folder):
    texts = [json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text().splitlines()]
    for page in (to_markdown(report), to_html(report), json.dumps(report.to_json(), ensure_ascii=False)):
        assert not any(text in page for text in texts)


def test_names_from_folders_are_escaped():
    evil = "<script>alert(1)</script>|[x](http://example.org)\n# `y`\x1b[31m"
    table = Table(("run", "score"), ((evil, "0.1"),))
    report = Report(evil, "Retrieval", evil, "0", (Finding("key", "Point", "fail", evil, {evil: 1}, table),))
    html = to_html(report)
    assert "<script>" not in html
    markdown = to_markdown(report)
    assert "<script>" not in markdown.replace("\\<script", "")
    assert "](http" not in markdown
    assert "\x1b" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") in (3, 4) for line in rows)
    assert sum(line.startswith("# ") for line in markdown.splitlines()) == 1
