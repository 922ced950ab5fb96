"""Sheets for clinicians: drawn in strata, written blind, safe to open, and compared with the labels."""

from __future__ import annotations

import csv
import json

import pytest
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.labels.review import (
    COLUMNS,
    REVIEW,
    ReviewSettings,
    Sheet,
    SheetPair,
    allocate,
    compare,
    draw,
    read_answers,
    strata_of,
    write_disagreements,
    write_sheet,
)
from medteb_mteb.curation.step import perform

SIZES = {"positive": 400, "negative": 90_000, "other": 12}
TEXTS = {f"t{i}": Text(f"t{i}", f"+第{i}条") for i in range(10)}
SHEET = Sheet(
    {i + 1: SheetPair(f"t{i}", f"t{i}", int(i < 4)) for i in range(10)}, {"positive": 8, "negative": 600}
)


@pytest.fixture
def sheet(tmp_path):
    write_sheet(tmp_path / "sheet.csv", SHEET, TEXTS, TEXTS)
    return tmp_path / "sheet.csv"


@pytest.fixture
def fill(sheet):
    """Writes an expert's file: `fill(name, answers)`, one answer per row, a blank for none."""

    def write(name, answers, encoding="utf-8-sig"):
        path = sheet.with_name(f"{name}.csv")
        with path.open("w", encoding=encoding, newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            writer.writerows((i, "问", "答", answer.strip(), "") for i, answer in enumerate(answers, start=1))
        return path

    return write


def rows_of(path):
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_stratum_has_its_minimum_and_the_budget_is_spent():
    allocated = allocate(SIZES, 500, 30)
    assert sum(allocated.values()) == 500
    assert allocated["other"] == 12  # all of them
    # By the square roots of the sizes, 20 and 300, of what the third stratum leaves.
    assert abs(allocated["negative"] - 488 * 300 / 320) <= 0.5
    assert allocate({"a": 5, "b": 7}, 100, 30) == {"a": 5, "b": 7}
    with pytest.raises(MarError, match="take 72 pairs"):
        allocate(SIZES, 60, 30)


def test_a_larger_sample_includes_the_smaller_one_of_each_stratum():
    strata = strata_of(Label(f"q{i}", f"d{i}", i % 2) for i in range(100))
    few = draw(strata, {"positive": 5, "negative": 0}, 7)
    many = draw(strata, {"positive": 20, "negative": 10}, 7)
    positives = {one for one in many.rows.values() if one.label}
    assert set(few.rows.values()) < positives
    assert (len(positives), list(many.rows)) == (20, list(range(1, 31)))
    assert many.pairs == {"positive": 50, "negative": 50}


def test_a_sheet_is_blind_safe_to_open_and_read_back(sheet):
    text = sheet.read_text(encoding="utf-8-sig")
    assert not any(word in text for word in ("positive", "negative", "t1"))
    assert all(row["query"].startswith("'+第") and row["answer"] == "" for row in rows_of(sheet))
    assert read_answers(sheet, SHEET) == {}
    key = json.loads(sheet.with_name("sheet.key.json").read_text(encoding="utf-8"))
    assert {one["row"]: one["label"] for one in key["rows"]} == {k: v.label for k, v in SHEET.rows.items()}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030"])
def test_answers_are_grades_or_yes_and_no_in_any_width(fill, encoding):
    given = ["S", " a ", "是", "Ｓ", "１", "B", "d", "N", "０", " "]
    answers = read_answers(fill("li", given, encoding), SHEET)
    assert answers == {row: int(row <= 5) for row in range(1, 10)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "lacks 1 of the 10 rows"),
        (lambda lines: [*lines, lines[1]], "row 1 occurs twice"),
        (lambda lines: [*lines, "99,a,b,1,"], ":12: expected a row of the sheet"),
        (lambda lines: ["a,b,c,d,e", *lines[1:]], ":2: expected a row"),
        (lambda lines: [*lines[:-1], "10,a,b,maybe,"], "'maybe' is not an answer"),
    ],
)
def test_files_other_than_the_sheet_are_refused(fill, change, message):
    path = fill("li", "1" * 10)
    path.write_text("\n".join(change(path.read_text("utf-8-sig").splitlines())) + "\n", encoding="utf-8")
    with pytest.raises(MarError, match=message):
        read_answers(path, SHEET)


def test_pairs_on_which_experts_differ_are_listed(fill, tmp_path):
    files = [fill("li", "1111000000"), fill("wang", "1100010000")]
    answers = {path.stem: read_answers(path, SHEET) for path in files}
    out = tmp_path / "differ.csv"
    assert write_disagreements(out, SHEET, answers, TEXTS, TEXTS) == 3
    shown = [(row["row"], row["answer of li"], row["answer of wang"]) for row in rows_of(out)]
    assert shown == [("3", "1", "0"), ("4", "1", "0"), ("6", "0", "1")]


def _fleiss_of_two(both, differing, neither):
    """Fleiss' kappa of two raters, of numbers of pairs."""
    total = both + differing + neither
    yes = (2 * both + differing) / (2 * total)
    chance = yes**2 + (1 - yes) ** 2
    return ((both + neither) / total - chance) / (1 - chance)


def test_agreement_weights_strata_by_size():
    answers = {row: int(one) for row, one in enumerate("1110" + "000000", start=1)}
    report = compare(SHEET, {"li": answers})
    assert (report["pairs"], report["unanswered"], report["kappa"]) == (10, 0, None)
    assert report["agreement"][0] == pytest.approx((8 * 3 / 4 + 600) / 608, abs=1e-4)
    assert report["agreement"][1] < report["agreement"][0] < report["agreement"][2]
    # Of all 608 pairs: 8 positives, 6 of which were confirmed, and 600 negatives.
    assert report["kappa_with_labels"] == pytest.approx(_fleiss_of_two(6, 2, 600), abs=1e-4)
    confirmed = report["confirmed"]
    assert (confirmed["positives"]["share"][0], confirmed["negatives"]["share"][0]) == (0.75, 1.0)
    assert (confirmed["positives"]["pairs"], confirmed["negatives"]["pairs"]) == (4, 6)
    with pytest.raises(MarError, match="No pair has answers"):
        compare(SHEET, {"li": answers, "wang": {}})


def test_perfect_answers_have_the_exact_interval():
    answers = {row: one.label for row, one in SHEET.rows.items()}
    report = compare(SHEET, {"li": answers, "wang": answers})
    # By hand: all of 4 positives and of 6 negatives, each with 97.5 %, weighted by their shares.
    low = 8 / 608 * 0.0125 ** (1 / 4) + 600 / 608 * 0.0125 ** (1 / 6)
    assert report["agreement"] == pytest.approx([1.0, low, 1.0], abs=1e-4)
    assert report["kappa"] == report["kappa_with_labels"] == 1.0


@pytest.fixture
def options(tmp_path):
    """Options of the step over 100 labels, a fifth of them positive."""
    labels = [Label(f"q{i}", f"d{j}", int(j < 2)) for i in range(10) for j in range(10)]
    rows = {
        "labels": [label.to_json() for label in labels],
        "queries": [{"_id": f"q{i}", "text": f"发烧第{i}天怎么办"} for i in range(10)],
        "documents": [{"_id": f"d{i}", "text": f"多休息，方案{i}。", "title": "发热"} for i in range(10)],
    }
    files = {name: write_jsonl(tmp_path / f"{name}.jsonl", contents) for name, contents in rows.items()}
    return {**files, "out": tmp_path / "review", "size": 50}


def test_the_step_draws_a_sheet_and_later_compares_filled_in_copies(options, tmp_path):
    record, _ = perform(REVIEW, ReviewSettings(**options))
    assert record["counts"]["details"]["drawn"] == {"negative": 30, "positive": 20}
    first = (tmp_path / "review" / "sheet.csv").read_bytes()
    key = json.loads((tmp_path / "review" / "sheet.key.json").read_text(encoding="utf-8"))
    labels = {one["row"]: one["label"] for one in key["rows"]}
    copies = []
    for name, wrong in (("li", ()), ("wang", (1, 2))):
        rows = rows_of(tmp_path / "review" / "sheet.csv")
        for row in rows:
            label = labels[int(row["row"])]
            row["answer"] = str(1 - label if int(row["row"]) in wrong else label)
        copies.append(tmp_path / f"{name}.csv")
        with copies[-1].open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    record, _ = perform(REVIEW, ReviewSettings(**options, answers=tuple(copies)))
    assert (tmp_path / "review" / "sheet.csv").read_bytes() == first
    details = record["counts"]["details"]
    assert (details["pairs"], details["disagreements"], details["by_reviewer"]["li"]) == (50, 2, 1.0)
    assert len(rows_of(tmp_path / "review" / "disagreements.csv")) == 2
    # A sheet that was filled in inside the folder is not overwritten.
    (tmp_path / "review" / "sheet.csv").write_bytes(copies[0].read_bytes())
    with pytest.raises(MarError, match="changed by hand"):
        perform(REVIEW, ReviewSettings(**{**options, "size": 40}))
