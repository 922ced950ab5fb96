"""Sheets for clinicians: written blind, safe to open, and read back whatever a spreadsheet made of them."""

from __future__ import annotations

import csv
import hashlib
import json

import pytest

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.sheet import (
    COLUMNS,
    Sheet,
    SheetPair,
    answered_by_all,
    guarded,
    key_of,
    read_answers,
    read_rows,
    read_sheet,
    write_rows,
    write_sheet,
)

QUERIES = {"q": Text("q", "=HYPERLINK(1)\n发烧")}
DOCUMENTS = {"d": Text("d", "多喝水。", "发热"), "e": Text("e", "x" * 140_000)}
DRAWN = [
    SheetPair(1, "q", "d", 1, "positive"),
    SheetPair(2, "q", "e", 0, "negative"),
    SheetPair(3, "q", "d", None, "negative"),
]
PAIRS = {"positive": 4, "negative": 8}
SHEET = Sheet({one.row: one for one in DRAWN}, PAIRS)


def write(path):
    write_sheet(path, DRAWN, PAIRS, QUERIES, DOCUMENTS, 7)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_sheet_is_read_back_as_it_was_drawn(tmp_path, suffix):
    path = write(tmp_path / f"sheet{suffix}")
    assert read_sheet(path) == SHEET
    rows = [row for _, row in read_rows(path)]
    assert [int(row["row"]) for row in rows] == [1, 2, 3]
    assert {(row["answer"], row["comment"]) for row in rows} == {("", "")}
    assert rows[0]["query"] == ("'" if suffix == ".csv" else "") + QUERIES["q"].text
    assert rows[1]["document"] == "x" * 140_000
    assert read_answers(path, SHEET) == {}


def test_the_sheet_does_not_tell_what_its_key_does(tmp_path):
    path = write(tmp_path / "sheet.csv")
    text = path.read_text(encoding="utf-8-sig")
    assert "positive" not in text
    key = json.loads(key_of(path).read_text(encoding="utf-8"))
    assert key["strata"] == {
        "positive": {"pairs": 4, "drawn": 1},
        "negative": {"pairs": 8, "drawn": 2},
    }
    assert [row["probability"] for row in key["rows"]] == [0.25, 0.25, 0.25]
    shown = f"{QUERIES['q'].full}\n{DOCUMENTS['d'].full}"
    assert key["rows"][0]["sha256"] == hashlib.sha256(shown.encode()).hexdigest()


@pytest.mark.parametrize("taken", ["sheet.jsonl", "sheet.key.json"])
def test_answers_are_not_overwritten(tmp_path, taken):
    (tmp_path / taken).write_text("answers")
    with pytest.raises(BuildError, match=r"sheet\.jsonl already exists; give another name"):
        write(tmp_path / "sheet.jsonl")
    assert (tmp_path / taken).read_text() == "answers"


@pytest.mark.parametrize("cell", ["=1+1", " -1", "\u3000@SUM(A1)", "+86", "\tx", "\r=1", "＝1", "\n"])
def test_cells_that_a_spreadsheet_would_run_are_escaped(cell):
    assert guarded(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "5-10", "a=b", "'=1", "发热"])
def test_other_cells_are_unchanged(cell):
    assert guarded(cell) == cell


def test_names_of_columns_are_escaped_too(tmp_path):
    write_rows(tmp_path / "s.csv", ("row", "=li"), [{"row": 1, "=li": "x"}])
    with (tmp_path / "s.csv").open(encoding="utf-8-sig", newline="") as stream:
        assert next(csv.reader(stream)) == ["row", "'=li"]


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        *[(cell, 1) for cell in (1, "S", " a ", "是", "YES", "Ｓ", "１")],
        *[(cell, 0) for cell in (0, "B", "d", "N", "ｂ", "０")],
    ],
)
def test_answers_are_grades_or_yes_and_no(tmp_path, cell, answer):
    rows = [{"row": 1, "answer": cell}, {"row": "2", "answer": None}, {"row": 3.0, "answer": "\u3000"}]
    write_rows(tmp_path / "li.jsonl", ("row", "answer"), rows)
    assert read_answers(tmp_path / "li.jsonl", SHEET) == {1: answer}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"row": 1, "answer": 2}', ":1: '2' is not a valid answer; give one of S, A"),
        ('{"row": 1, "answer": true}', ":1: 'True' is not a valid answer"),
        ('{"row": 4, "answer": 1}', ":1: row 4 does not belong to this sheet"),
        ('{"row": 1.5, "answer": 1}', ":1: expected the columns row, query"),
        ('{"row": true, "answer": 1}', ":1: expected the columns row, query"),
        ('{"row": 1e999, "answer": 1}', ":1: expected the columns row, query"),
        ('{"row": [1], "answer": 1}', ":1: expected the columns row, query"),
        ('{"answer": 1}', ":1: expected the columns row, query"),
        ('{"row": 1}', ":1: the column 'answer' is missing"),
        ('{"row": 1, "answer": 1}\n{"row": "1", "answer": 0}', ":2: row 1 occurs twice"),
        ('{"row": 1, "answer": 1}', "lacks 2 of the 3 rows; leave unanswered ones in"),
        ("[1]", r"cannot be read as JSONL in UTF-8 \(a line is not an object\)"),
        ('{"row": 1, "ans', "cannot be read as JSONL in UTF-8"),
        ("[" * 100_000, "cannot be read as JSONL in UTF-8"),
    ],
)
def test_a_returned_file_that_is_not_the_sheet_is_refused_with_the_line(tmp_path, line, message):
    (tmp_path / "li.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        read_answers(tmp_path / "li.jsonl", SHEET)


def test_a_sheet_saved_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "li.csv").write_bytes(",".join(COLUMNS).encode() + "\n1,发热,多喝水,是,\n".encode("gb18030"))
    with pytest.raises(BuildError, match=r"li\.csv cannot be read as CSV in UTF-8 .*Save it as that"):
        read_answers(tmp_path / "li.csv", SHEET)


def test_a_sheet_with_two_columns_of_answers_is_refused(tmp_path):
    header, rows = ",".join(COLUMNS), "".join(f"{row},发热,多喝水,是,,,,否\n" for row in (1, 2, 3))
    (tmp_path / "li.csv").write_text(f"{header},,,answer\n{rows}", encoding="utf-8")
    with pytest.raises(BuildError, match=r"li\.csv:1: the column 'answer' occurs twice"):
        read_answers(tmp_path / "li.csv", SHEET)
    (tmp_path / "li.csv").write_text(f"{header},,,\n{rows}", encoding="utf-8")
    assert read_answers(tmp_path / "li.csv", SHEET) == {1: 1, 2: 1, 3: 1}


ROW = {"row": 1, "query-id": "q", "corpus-id": "d", "label": 1, "stratum": "positive"}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"strata": [], "rows": []},
        {"strata": {"positive": {"pairs": float("inf")}}, "rows": []},
        {"strata": {"positive": {"pairs": 4}}, "rows": [1]},
        {"strata": {"positive": {"pairs": 4}}, "rows": [{"row": 1}]},
        {"strata": {"positive": {"pairs": 4}}, "rows": [ROW, ROW]},
        {"strata": {"negative": {"pairs": 4}}, "rows": [ROW]},
        *(
            {"strata": {"positive": {"pairs": 4}}, "rows": [ROW | change]}
            for change in ({"row": "1"}, {"row": [1]}, {"query-id": 7}, {"label": "x"}, {"stratum": ["x"]})
        ),
    ],
)
def test_a_damaged_key_is_one_clear_error(tmp_path, content):
    key_of(tmp_path / "sheet.csv").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BuildError, match=r"sheet\.key\.json (is not the key|has rows of strata).*Export"):
        read_sheet(tmp_path / "sheet.csv")


def test_only_rows_that_every_reviewer_answered_count():
    assert answered_by_all([1, 2, 3], [{1: 0, 3: 1}, {3: 0, 1: 1, 2: 1}]) == [1, 3]
    for answers in ([{1: 1}, {2: 1}], []):
        with pytest.raises(BuildError, match="No pair has answers of all reviewers"):
            answered_by_all([1, 2], answers)
