"""The step `review`: a sheet for clinicians, which a later build leaves as they filled it in."""

from __future__ import annotations

import csv

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.labels.grades import read_labels
from medteb_mteb.curation.labels.review import export_review

REVIEW = {
    "step": "review", "labels": "labels.jsonl", "queries": "queries.jsonl", "documents": "documents.jsonl"
}  # fmt: skip


def test_the_sheet_is_that_of_the_function_with_the_same_options(made, labelled, tmp_path):
    options = {"size": 20, "positives": 0.5, "seed": 3}
    result, folder = made({**REVIEW, **options})
    texts = [
        {text.id: text for text in read_texts(tmp_path / f"{name}.jsonl")}
        for name in ("queries", "documents")
    ]
    number = export_review(read_labels(tmp_path / labelled), *texts, tmp_path / "by-hand.csv", **options)
    assert result == {"pairs": number, "sheet": str(folder / "sheet.csv")}
    assert (folder / "sheet.csv").read_bytes() == (tmp_path / "by-hand.csv").read_bytes()
    with (folder / "sheet.csv").open(encoding="utf-8-sig", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 20


def test_a_sheet_with_answers_is_kept(made, labelled, write, quiet):
    _, folder = made({**REVIEW, "size": 12})
    sheet = folder / "sheet.csv"
    sheet.write_text(sheet.read_text(encoding="utf-8-sig").replace(",\r\n", ",S\r\n"), encoding="utf-8-sig")
    answered = sheet.read_bytes()
    again = quiet(write(steps=[{**REVIEW, "size": 12}]))
    assert [step.fate for step in again.steps] == ["kept"]
    quiet(write(steps=[{**REVIEW, "size": 14}]), redo=True)
    assert (folder.parent / "review.old-1" / "sheet.csv").read_bytes() == answered
    assert sheet.read_bytes() != answered


@pytest.mark.parametrize(("key", "value"), [("size", 0), ("positives", -0.1), ("positives", 1.1)])
def test_impossible_options_are_refused(parsed, key, value):
    with pytest.raises(ValidationError, match=key):
        parsed(**{**REVIEW, key: value})
