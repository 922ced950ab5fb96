"""Rows of STS, pair classification, classification and clustering folders."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.folders.tables import problems_of

from medteb_mteb.folders import read_folder
from medteb_mteb.folders.labelled import guess_type
from medteb_mteb.folders.rows import Row

PAIR = {"sentence1": "a", "sentence2": "b"}


@pytest.fixture
def folder(tmp_path):
    """Writes `test.jsonl` (and `train.jsonl`) with these rows, or TSV of this text."""

    def write(test, train=None):
        root = tmp_path / "set"
        root.mkdir()
        for split, rows in (("test", test), ("train", train)):
            if isinstance(rows, str):
                (root / f"{split}.tsv").write_text(rows, encoding="utf-8")
            elif rows is not None:
                lines = "".join(json.dumps(row) + "\n" for row in rows)
                (root / f"{split}.jsonl").write_text(lines, encoding="utf-8")
        return root

    return write


def classes(*labels):
    return [{"text": f"t{i}", "label": label} for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (["sentence1", "sentence2", "score"], "STS"),
        (["label", "sentence2", "sentence1", "source"], "PairClassification"),
        (["text", "label", "label_text"], "Classification"),
        (["sentences", "labels"], "Clustering"),
        (["sentence1", "sentence2", "score", "label"], None),
        (["text", "score"], None),
        ([], None),
    ],
)
def test_a_type_is_guessed_only_if_no_other_fits(columns, kind):
    assert guess_type(Row("test.jsonl", 1, dict.fromkeys(columns))) == kind


def test_whole_numbers_as_labels_are_ranked_as_numbers_and_text_as_text(folder, tmp_path):
    rows = read_folder(folder(classes(10), classes(10, 9, 2))).records["train"]
    assert [(row["label"], row["label_text"]) for row in rows] == [(2, "10"), (1, "9"), (0, "2")]
    (tmp_path / "set").rename(tmp_path / "numbers")
    rows = read_folder(folder(classes("10"), classes("10", "9", "2"))).records["train"]
    assert [(row["label"], row["label_text"]) for row in rows] == [(0, "10"), (2, "9"), (1, "2")]


def test_labels_beyond_the_digits_of_a_float_stay_apart(folder):
    large = 2**53
    rows = read_folder(folder(classes(large), classes(large, large + 1, 10**400))).records["train"]
    assert [row["label_text"] for row in rows] == [str(large), str(large + 1), str(10**400)]
    assert [row["label"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize("codes", [["J45", "250.5", "250.0"], ["a", "nan", "1e999"], ["1.5", "2.5", "2"]])
def test_codes_in_a_tsv_file_are_text_unless_all_are_whole_numbers(folder, codes):
    table = "text\tlabel\n" + "".join(f"t\t{code}\n" for code in codes)
    records = read_folder(folder(table, table)).records["train"]
    assert [row["label_text"] for row in records] == codes


def test_a_name_of_a_label_is_kept_and_must_be_one_text(folder, tmp_path):
    train = [{"text": "a", "label": 1, "label_text": "内科"}, {"text": "b", "label": 2, "label_text": None}]
    records = read_folder(folder(train[:1], train)).records
    assert [row["label_text"] for row in records["train"]] == ["内科", "2"]
    (tmp_path / "set").rename(tmp_path / "first")
    wrong = [{"text": "a", "label": 1, "label_text": name} for name in ("\ud800", ["内科"], "外科")]
    assert problems_of(folder(wrong, train)).problems == [
        r"test.jsonl:1: label_text must be non-empty text, got '\ud800'",
        "test.jsonl:2: label_text must be non-empty text, got ['内科']",
        "test.jsonl:3: label 1 is called '外科' here and '内科' before",
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{**PAIR, "score": 1}, {**PAIR, "score": 1.0}], "every score is the same"),
        ([{**PAIR, "label": 1}, {**PAIR, "label": True}], "both labels, 0 and 1, must occur"),
        ([{"sentences": "a", "labels": "x"}, {"sentences": "b", "labels": "x"}], "two different labels"),
        ([{"sentences": ["a", "b"], "labels": [1, 1.0]}], "two different labels must occur in a row"),
    ],
)
def test_a_test_without_a_difference_to_find_is_refused(folder, rows, problem):
    assert any(problem in line for line in problems_of(folder(rows)).problems)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"sentences": ["a"], "labels": ["x", "y"]}, "1 sentences but 2 labels"),
        ({"sentences": ["a"], "labels": "x"}, "1 sentences but no list of labels"),
        (
            {"sentences": ["a", "b"], "labels": ["x", 1]},
            "labels must be all whole numbers or all non-empty text",
        ),
        (
            {"sentences": ["a", "b"], "labels": ["x", None]},
            "labels must be all whole numbers or all non-empty text",
        ),
        ({"sentences": ["a", ""], "labels": ["x", "y"]}, "sentence 2 of the row is empty or not text"),
        ({"sentences": ["a", "\udfff"], "labels": ["x", "y"]}, "sentence 2 of the row is empty or not text"),
    ],
)
def test_a_row_of_lists_must_fit_together(folder, row, problem):
    good = {"sentences": ["a", "b"], "labels": ["x", "y"]}
    assert problems_of(folder([good, row])).problems == [f"test.jsonl:2: {problem}"]


def test_lists_of_sentences_keep_their_order_and_labels_become_text(folder):
    records = read_folder(folder([{"sentences": ["a", "b", "c"], "labels": [2, 1, 2.0]}])).records["test"]
    assert records == [{"sentences": ["a", "b", "c"], "labels": ["2", "1", "2"]}]


@pytest.mark.parametrize(
    "row",
    [
        {"sentence1": ["x"] * 99_999, "sentence2": "b", "score": 1},
        {**PAIR, "score": "x" * 99_999},
    ],
)
def test_a_huge_value_is_shown_in_part(folder, row):
    error = problems_of(folder([{**PAIR, "score": 1}, {**PAIR, "score": 2}, row]))
    assert error.total == 1
    assert len(str(error)) < 400
