"""`medteb round-trip` with BM25, and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medteb_mteb.commands.round_trip import report_text
from medteb_mteb.curation.training import RoundTripReport

ARGS = ("round-trip", "pairs.jsonl", "out", "-r", "bm25", "-q")


@pytest.fixture
def pairs(work, write):
    """Three pairs; the document of the last one is about something else."""
    rows = [
        {"query": "感冒怎么办", "positive": "感冒患者应多休息。"},
        {"query": "高血压饮食", "positive": "高血压患者饮食宜低盐。"},
        {"query": "糖尿病症状", "positive": "骨折后应固定。"},
    ]
    write(work / "pairs.jsonl", rows)
    return work


def test_pairs_whose_document_is_found_are_kept(medteb, pairs, rows_of):
    code, out, err = medteb(*ARGS)
    assert code == 0
    assert "no --against EDITION was given" in err
    assert out.startswith("2 of 3 pairs kept (66.7%), 2 rows\n  dropped: 1 ")
    assert out.endswith("in 3 documents\nout\n")
    rows = rows_of(pairs / "out" / "pairs.jsonl")
    assert [(row["query"], row["ranks"]) for row in rows] == [("感冒怎么办", [1]), ("高血压饮食", [1])]
    (dropped,) = rows_of(pairs / "out" / "dropped.jsonl")
    assert (dropped["query"], dropped["rank"]) == ("糖尿病症状", None)
    report = json.loads(medteb(*ARGS, "--json")[1])
    assert report_text(RoundTripReport(**report)) + "\n" == out


def test_queries_of_a_test_are_dropped(medteb, pairs, write):
    write(pairs / "test.jsonl", [{"_id": "t", "text": "感冒怎么办？"}])
    code, out, err = medteb(*ARGS, "--against", "test.jsonl", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["kept"], report["dropped"]["test-query"]) == (1, 1)


def test_a_larger_corpus_pushes_documents_beyond_the_depth(medteb, pairs, write):
    others = [{"_id": f"d{i}", "text": f"感冒怎么办{'？' * i}"} for i in range(1, 4)]
    write(pairs / "corpus.jsonl", others)
    code, out, err = medteb(*ARGS, "--documents", "corpus.jsonl", "--depth", "1", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["rows"]["documents"], report["kept"]) == (6, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("round-trip", "pairs.jsonl", "out", "-q"), "Missing option '-r' / '--retriever'"),
        (("round-trip", "gone.jsonl", "out", "-r", "bm25", "-q"), "gone.jsonl"),
        (("round-trip", "pairs.jsonl", "out", "-r", "./gone", "-q"), "There is no folder ./gone"),
        ((*ARGS, "--depth", "0"), "depth"),
        ((*ARGS, "--against", "gone.jsonl"), "There is no gone.jsonl"),
    ],
)
def test_unusable_input_is_refused(medteb, pairs, args, message):
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert not (pairs / "out" / "manifest.json").exists()


def test_a_report_of_negatives_counts_rows_without_any():
    rows = {"read": 2000, "kept": 1500, "documents": 9000, "negatives": 4000, "without a negative": 30}
    report = RoundTripReport(Path("out"), 2000, 1500, {"not-found": 500}, {"1": 1200, "3": 1500}, rows)
    assert report_text(report).splitlines() == [
        "1,500 of 2,000 pairs kept (75.0%), 1,500 rows",
        "  dropped: 500 not-found",
        "found up to rank 1: 1,200, 3: 1,500; in 9,000 documents",
        "4,000 negatives; 30 rows without any",
        "out",
    ]
    empty = RoundTripReport(Path("out"), 0, 0, {}, {}, rows | {"negatives": 0, "kept": 0})
    assert report_text(empty).splitlines()[0] == "0 of 0 pairs kept (0.0%), 0 rows"
