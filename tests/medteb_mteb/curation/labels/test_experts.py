from __future__ import annotations

import csv
import json

import pytest

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.experts import read_experts, write_disagreements
from medteb_mteb.curation.labels.review import import_review
from medteb_mteb.curation.labels.sheet import COLUMNS, SheetPair, key_of, write_sheet

TEXTS = {f"t{i}": Text(f"t{i}", f"+第{i}条") for i in range(12)}
DRAWN = [
    SheetPair(i + 1, f"t{i}", f"t{i}", label, stratum)
    for i, (label, stratum) in enumerate(
        [(1, "positive")] * 4 + [(0, "negative")] * 6 + [(None, "disputed")] * 2
    )
]
PAIRS = {"positive": 8, "negative": 600, "disputed": 2}


@pytest.fixture
def sheet(tmp_path):
    write_sheet(tmp_path / "sheet.csv", DRAWN, PAIRS, TEXTS, TEXTS, 1)
    return tmp_path / "sheet.csv"


@pytest.fixture
def fill(sheet):
    """Writes an expert's file: `fill(name, answers)`, one character per row, a blank for none."""

    def write(name, answers, suffix=".csv"):
        path = sheet.with_name(name + suffix)
        rows = [
            dict(zip(COLUMNS, (i, "", "", answer.strip(), ""), strict=True))
            for i, answer in enumerate(answers, start=1)
        ]
        if suffix == ".jsonl":
            path.write_text("\n".join(json.dumps(row) for row in rows))
            return path
        with path.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def test_answers_are_weighted_by_the_size_of_their_stratum(sheet, fill):
    experts = read_experts(sheet, [fill("li", "SSDD" + "DDDDA " + "10", ".jsonl")])
    assert (experts.number, experts.kappa, experts.unanswered, len(experts.answers)) == (1, None, 1, 11)
    assert [experts.answers[f"t{i}", f"t{i}"] for i in range(4)] == [1, 1, 0, 0]
    assert experts.weight(("t0", "t0")) == 8 / 4
    assert experts.weight(("t4", "t4")) == 600 / 5  # one of six has no answer
    assert experts.weight(("t11", "t11")) == 1.0
    # Together they represent all pairs.
    assert sum(experts.weight(pair) for pair in experts.answers) == sum(PAIRS.values())


def test_experts_that_differ_are_decided_by_a_third_column(sheet, fill, tmp_path):
    li, wang = fill("li", "1111000000" + "10"), fill("wang", "1100010000" + "10")
    before = read_experts(sheet, [li, wang])
    assert (before.differing, before.undecided, len(before.answers)) == (3, 3, 9)
    assert 0 < before.kappa < 1
    out = tmp_path / "differ.csv"
    assert write_disagreements(sheet, {"li": li, "wang": wang}, out) == 3
    with out.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["row"], row["li"], row["wang"], row["decision"]) for row in rows] == [
        ("3", "1", "0", ""),
        ("4", "1", "0", ""),
        ("6", "0", "1", ""),
    ]
    assert rows[0]["query"] == "'+第2条"  # as in the sheet
    assert read_experts(sheet, [li, wang], out) == before
    for row, decision in zip(rows, ("是", "0", ""), strict=True):
        row["decision"] = decision
    with out.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    after = read_experts(sheet, [li, wang], out)
    assert (after.differing, after.undecided, len(after.answers)) == (3, 1, 11)
    assert (after.answers["t2", "t2"], after.answers["t3", "t3"]) == (1, 0)
    assert after.kappa == before.kappa
    with pytest.raises(BuildError, match="decides row 3, on which the experts do not differ"):
        read_experts(sheet, [li, li], out)


def test_three_experts_have_a_majority(sheet, fill):
    files = [fill("a", "1" * 12), fill("b", "1" * 12), fill("c", "0" * 12)]
    experts = read_experts(sheet, files)
    assert (experts.differing, set(experts.answers.values())) == (0, {1})


def test_too_few_experts_and_reserved_names_are_refused(sheet, fill, tmp_path):
    one = fill("one", "1" * 12)
    with pytest.raises(BuildError, match="two experts or more"):
        write_disagreements(sheet, {"one": one}, tmp_path / "x.csv")
    with pytest.raises(BuildError, match="'comment', which is a column"):
        write_disagreements(sheet, {"comment": one, "one": one}, tmp_path / "x.csv")
    with pytest.raises(BuildError, match="already exists"):
        write_disagreements(sheet, {"a": one, "one": one}, one)
    with pytest.raises(BuildError, match="the column 'decision' is missing"):
        read_experts(sheet, [one, fill("two", "0" * 12)], one)


def test_agreement_weights_strata_by_size_without_disputed_pairs(sheet, fill):
    review = import_review(sheet, {"li": fill("li", "1110" + "000000" + "10")})
    assert (review.pairs, review.unanswered) == (10, 0)
    assert review.agreement == pytest.approx((8 * 3 / 4 + 600) / 608)
    assert (review.positives_confirmed, review.negatives_confirmed) == (0.75, 1.0)


def test_a_key_of_an_earlier_version_is_read(sheet, fill):
    content = json.loads(key_of(sheet).read_text())
    rows = [
        {k: v for k, v in row.items() if k not in ("stratum", "probability")} for row in content["rows"][:10]
    ]
    key_of(sheet).write_text(
        json.dumps({"seed": 1, "labelled": {"positive": 8, "negative": 600}, "rows": rows})
    )
    experts = read_experts(sheet, [fill("li", "1110" + "000000")])
    assert experts.pairs == {"positive": 8, "negative": 600}
    assert experts.weight(("t0", "t0")) == 2.0
