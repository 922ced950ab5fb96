"""The step `anonymize`: one secret for the whole build, and the options of its command."""

from __future__ import annotations

import csv

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.anonymize.sheet import write_sheet
from medteb_mteb.curation.anonymize.step import anonymize


def test_a_name_gets_the_same_surrogate_in_all_texts_of_a_build(made, save, rows_of):
    save("asked.jsonl", [{"_id": "a", "text": "患者王秀兰，女，54岁"}])
    save("answered.jsonl", [{"_id": "b", "text": "患者王秀兰，高血压"}])
    step = {"step": "anonymize", "mode": "surrogate"}
    result, folder = made(
        {**step, "name": "queries", "in": "asked.jsonl"},
        {**step, "name": "documents", "in": "answered.jsonl"},
    )
    (asked,), (answered,) = (
        rows_of(folder.parent / name / "records-00000.jsonl") for name in ("queries", "documents")
    )
    name = asked["text"].removeprefix("患者").removesuffix("，女，54岁")
    assert name not in ("王秀兰", "")
    assert answered["text"] == f"患者{name}，高血压"
    assert (folder.parent / "surrogates.salt").is_file()
    assert result == {"read": 1, "kept": 1, "dropped": {}, "identifiers": {"NAME": 1}}


def test_the_step_writes_what_the_function_writes_with_its_options(made, save, files_of, tmp_path):
    rows = [
        {"no": "a1", "asked": "患者王秀兰，电话13800138000", "ward": "心内科12床", "note": "李建国主任"},
        {"no": "a2", "asked": "邮箱a.b@example.com，头痛三天", "ward": "一病区", "note": ""},
    ]
    path = save("rows.jsonl", rows)
    options = {
        "kinds": ("PHONE", "NAME"),
        "keep_meta": ("ward",),
        "ids": "digest",
        "strict": True,
        "columns": {"text": "asked", "id": "no"},
    }
    result, folder = made({"step": "anonymize", "in": "rows.jsonl", **options})
    done = anonymize(path, tmp_path / "by-hand", show_progress=False, **options)
    assert files_of(folder) == files_of(tmp_path / "by-hand")
    assert result["identifiers"] == done.identifiers == {"NAME": 1, "PHONE": 1}
    plain, _ = made({"step": "anonymize", "in": "rows.jsonl", "columns": {"text": "asked"}}, out="plain")
    assert plain["identifiers"] == {"EMAIL": 1, "NAME": 1, "PHONE": 1}


def test_known_names_are_found_without_a_label(made, save, rows_of, tmp_path):
    save("rows.jsonl", [{"_id": "a", "text": "昨天由作田复查，血压平稳"}])
    (tmp_path / "staff.txt").write_text("由作田\n", encoding="utf-8")
    _, folder = made({"step": "anonymize", "in": "rows.jsonl"})
    assert "由作田" in rows_of(folder / "records-00000.jsonl")[0]["text"]
    result, folder = made({"step": "anonymize", "name": "known", "in": "rows.jsonl", "known": "staff.txt"})
    assert "由作田" not in rows_of(folder / "records-00000.jsonl")[0]["text"]
    assert result["identifiers"] == {"NAME": 1}


@pytest.mark.parametrize(
    ("key", "value"), [("mode", "mask"), ("ids", "drop"), ("kinds", "NAME"), ("salt", "x")]
)
def test_an_option_that_the_command_does_not_have_is_refused(parsed, key, value):
    with pytest.raises(ValidationError, match=key):
        parsed(step="anonymize", **{"in": "a.jsonl", key: value})


def test_a_reviewed_sheet_decides_about_doubtful_identifiers(made, save, rows_of, tmp_path):
    source = save("rows.jsonl", [{"_id": "a", "text": "样品A3320117号"}])
    sheet = tmp_path / "sheet.csv"
    write_sheet(source, sheet, show_progress=False)
    with sheet.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    with sheet.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "identifier": "是" if row["value"] == "A3320117" else "否"} for row in rows)
    step = {"step": "anonymize", "in": "rows.jsonl"}
    assert made(step)[0]["identifiers"] == {}
    _, folder = made({**step, "name": "reviewed", "reviewed": "sheet.csv"})
    assert "A3320117" not in rows_of(folder / "records-00000.jsonl")[0]["text"]
