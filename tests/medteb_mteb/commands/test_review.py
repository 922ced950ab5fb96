"""The commands of a review by clinicians, from the plan to the page of results."""

from __future__ import annotations

import csv
import json

import pytest


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def clinic(tmp_path):
    """Thirty queries of two departments, each with a positive and a judged negative."""
    folder = tmp_path / "clinic"
    (folder / "qrels").mkdir(parents=True)
    write(
        folder / "queries.jsonl",
        [
            {"_id": f"q{i}", "text": f"第{i}种病吃什么药", "department": "儿科" if i % 3 else "内科"}
            for i in range(30)
        ],
    )
    write(
        folder / "corpus.jsonl",
        [{"_id": f"{kind}{i}", "title": "", "text": f"{i}号{kind}"} for i in range(30) for kind in "pn"],
    )
    qrels = [f"q{i}\tp{i}\t1" for i in range(30)] + [f"q{i}\tn{i}\t0" for i in range(30)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels]) + "\n")
    return folder


def fill(sheet, name, answer):
    """A copy of a sheet with answers made of its rows."""
    with sheet.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    column = "decision" if "decision" in rows[0] else "answer"
    path = sheet.with_name(name)
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows([{**row, column: answer(row)} for row in rows])
    return path


def test_a_planned_review_confirms_the_labels_once_differences_are_decided(medteb, clinic, tmp_path):
    sheet = tmp_path / "sheet.csv"
    code, out, err = medteb(
        "review", "plan", clinic, sheet, "--budget", 48, "--minimum", 8, "--by", "department"
    )
    assert (code, err) == (0, "")
    assert "negative, 儿科" in out
    assert "48 pairs in" in out

    def right(row):
        return int("p" in row["document"])

    def strict(row):  # refuses every positive of the third row's kind
        return right(row) if int(row["row"]) % 6 else 0

    li, wang = fill(sheet, "li.csv", right), fill(sheet, "wang.csv", strict)
    code, out, _ = medteb("review", "adjudicate", sheet, li, wang, "--out", tmp_path / "differ.csv")
    number = int(out.split()[0])
    assert (code, number > 0) == (0, True)
    answered = ["--review", sheet, "--answered", li, "--answered", wang]

    def finding(*more):
        rows = json.loads(medteb("validate", clinic, *answered, *more, "--json")[1])["findings"]
        return next(row for row in rows if row["check"] == "label accuracy")

    open_cases = finding()
    assert open_cases["numbers"]["of these, not decided"] == number
    assert open_cases["verdict"] == "warning"
    decided = fill(tmp_path / "differ.csv", "decided.csv", lambda row: row["li"])
    settled = finding("--decided", decided)
    assert settled["verdict"] == "ok"
    assert settled["numbers"]["positives confirmed"] == settled["numbers"]["negatives confirmed"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "5"], "2 strata with at least 30 pairs each take 60 pairs, and the budget is 5"),
        (["--budget", "60", "--by", "ward"], "no query has a field 'ward'; the fields are department"),
    ],
)
def test_unusable_plans_are_refused(medteb, clinic, tmp_path, arguments, message):
    code, out, err = medteb("review", "plan", clinic, tmp_path / "sheet.csv", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "sheet.csv").exists()


def test_decisions_belong_to_a_sheet(medteb, clinic, tmp_path):
    code, _, err = medteb("validate", clinic, "--decided", tmp_path / "x.csv")
    assert (code, "belong to a sheet" in err) == (2, True)
