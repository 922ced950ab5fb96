from __future__ import annotations

import csv

import pytest

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.labels.review import export_review, import_review, key_of
from medteb_mteb.curation.labels.sheet import COLUMNS

QUERIES = {f"q{i}": Text(f"q{i}", f"发烧第{i}天怎么办") for i in range(10)}
DOCUMENTS = {f"d{i}": Text(f"d{i}", f"多休息，方案{i}。", "发热") for i in range(10)}
LABELS = [Label(f"q{i}", f"d{j}", int(j < 2)) for i in range(10) for j in range(10)]  # 20 % positive
LABELS.append(Label("q0", "d0", None, "judges disagree"))


@pytest.fixture
def sheet(tmp_path):
    path = tmp_path / "sheet.csv"
    assert export_review(LABELS, QUERIES, DOCUMENTS, path, size=50, seed=3) == 50
    return path


def rows_of(path):
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def answer(sheet, name, give):
    """A clinician's file; `give` makes an answer of a row's true label and number."""
    import json

    labels = {entry["row"]: entry["label"] for entry in json.loads(key_of(sheet).read_text())["rows"]}
    path = sheet.with_name(name)
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row in rows_of(sheet):
            writer.writerow({**row, "answer": give(labels[int(row["row"])], int(row["row"]))})
    return path


def test_the_sheet_is_blind_seeded_and_representative(sheet, tmp_path):
    rows = rows_of(sheet)
    assert list(rows[0]) == list(COLUMNS)
    assert {row["answer"] for row in rows} == {""}
    assert all("q" not in row["query"] and row["document"].startswith("发热\n") for row in rows)
    again = tmp_path / "again.csv"
    export_review(LABELS, QUERIES, DOCUMENTS, again, size=50, seed=3)
    assert again.read_bytes() == sheet.read_bytes()
    assert '"label": 1' in key_of(sheet).read_text()
    assert key_of(sheet).read_text().count('"label": 1') == 10  # 20 % of 50


def test_perfect_answers_agree_in_every_notation(sheet):
    letters = answer(sheet, "li.csv", lambda label, row: "A" if label else "c")
    numbers = answer(sheet, "wang.csv", lambda label, row: "是" if label else "0")
    review = import_review(sheet, {"li": letters, "wang": numbers})
    assert (review.pairs, review.unanswered, review.agreement, review.high) == (50, 0, 1.0, 1.0)
    # By hand: all of 10 positives and of 40 negatives, each with 97.5 %, weighted by their shares.
    assert review.low == pytest.approx(0.2 * 0.0125 ** (1 / 10) + 0.8 * 0.0125 ** (1 / 40))
    assert review.kappa == review.kappa_with_labels == 1.0
    assert review.by_reviewer == {"li": 1.0, "wang": 1.0}


def test_agreement_counts_positives_by_their_share_among_the_labels(tmp_path):
    sheet = tmp_path / "half.csv"
    export_review(LABELS, QUERIES, DOCUMENTS, sheet, size=40, positives=0.5)
    # All positives confirmed, a quarter of the negatives called positive: 0.2 * 1 + 0.8 * 0.75.
    negatives = iter(range(20))
    answered = answer(sheet, "x.csv", lambda label, row: 1 if label else int(next(negatives) % 4 == 0))
    review = import_review(sheet, {"x": answered})
    assert review.agreement == pytest.approx(0.8)
    assert (review.positives_confirmed, review.negatives_confirmed) == (1.0, 0.75)
    assert review.kappa is None
    assert review.low < 0.8 < review.high


def test_unanswered_rows_are_counted_and_left_out(sheet):
    incomplete = answer(sheet, "a.csv", lambda label, row: "" if row % 5 == 0 else label)
    review = import_review(sheet, {"a": incomplete, "b": answer(sheet, "b.csv", lambda label, row: label)})
    assert (review.pairs, review.unanswered) == (40, 10)
    with pytest.raises(BuildError, match="No pair has answers of all reviewers"):
        import_review(sheet, {"n": answer(sheet, "n.csv", lambda label, row: "")})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[:-1], "lacks 1 of the 50 rows"),
        (lambda lines: [*lines, lines[1]], r":52: row \d+ occurs twice"),
        (lambda lines: [*lines, "99,a,b,1,"], ":52: row 99 does not belong to this sheet"),
        (lambda lines: ["a,b", *lines[1:]], ":2: expected the columns row, query"),
    ],
)
def test_files_other_than_the_sheet_are_refused(tmp_path, damage, message):
    sheet = tmp_path / "sheet.csv"
    plain = {name: Text(name, text.text) for name, text in DOCUMENTS.items()}  # no line breaks in cells
    export_review(LABELS, QUERIES, plain, sheet, size=50)
    lines = sheet.read_text(encoding="utf-8-sig").splitlines()
    (tmp_path / "back.csv").write_text("\n".join(damage(lines)) + "\n", encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        import_review(sheet, {"x": tmp_path / "back.csv"})


def test_invalid_answers_are_refused(sheet):
    with pytest.raises(BuildError, match="'maybe' is not a valid answer; give one of S, A"):
        import_review(sheet, {"x": answer(sheet, "x.csv", lambda label, row: "maybe")})


def test_impossible_exports_are_refused(sheet, tmp_path):
    with pytest.raises(BuildError, match="already exists"):
        export_review(LABELS, QUERIES, DOCUMENTS, sheet)
    with pytest.raises(BuildError, match="50 positives are requested, but there are only 20"):
        export_review(LABELS, QUERIES, DOCUMENTS, tmp_path / "x.csv", positives=0.5)
    with pytest.raises(BuildError, match="no labels to review"):
        export_review(LABELS[-1:], QUERIES, DOCUMENTS, tmp_path / "x.csv")
    with pytest.raises(BuildError, match="name 'd0', and no text"):
        export_review(LABELS[:1], QUERIES, {}, tmp_path / "x.csv")


def test_labels_without_a_positive_are_refused_with_the_remedy_that_helps(tmp_path):
    negatives = [label for label in LABELS if label.relevance == 0]
    with pytest.raises(BuildError, match=r"^None of the \d+ labels is positive, .* --positives 0 reviews"):
        export_review(negatives, QUERIES, DOCUMENTS, tmp_path / "x.csv")


def test_a_sheet_without_a_positive_is_refused(tmp_path):
    few = [label for label in LABELS if label.relevance == 0] + [next(one for one in LABELS if one.relevance)]
    with pytest.raises(BuildError, match=r"would contain no positives \(1 of .*--positives 0\.5"):
        export_review(few, QUERIES, DOCUMENTS, tmp_path / "x.csv", size=5)
    assert export_review(few, QUERIES, DOCUMENTS, tmp_path / "y.csv", size=5, positives=0.0) == 5
