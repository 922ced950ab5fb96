"""Pairs are kept whose document a retriever finds; ranks are those of a full ranking."""

from __future__ import annotations

import random
import sys

import pytest
from pydantic import ValidationError
from tests.mar_st.mining.conftest import LETTERS, Table

from mar_st.mining.retrievers import BM25
from medteb_mteb.curation.training.round_trip import ROUND_TRIP

MODULE = sys.modules["medteb_mteb.curation.training.round_trip"]


def texts(number, seed):
    rng = random.Random(seed)
    drawn = {}
    while len(drawn) < number:
        drawn["".join(rng.choices(LETTERS, k=rng.randint(8, 16)))] = None
    return list(drawn)


@pytest.fixture
def pairs(tmp_path, write):
    """Sixty pairs of fifty queries; ten queries have two documents."""
    queries, documents = texts(50, 1), texts(60, 2)
    rows = [{"query": queries[n % 50], "positive": documents[n]} for n in range(60)]
    return write(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def trip(run_step, monkeypatch):
    """Runs the step with a retriever that a test names."""

    def run(pairs, out="out", retriever=None, **options):
        found = retriever or Table()
        monkeypatch.setattr(MODULE, "open_retriever", lambda name, settings: found)
        return run_step(ROUND_TRIP, out, pairs=pairs, retriever="bm25", **options)

    return run


def naive_rank(table, row, rows, corpus):
    """Rank of a row's document in the whole ranking, its query's other documents left out."""
    others = {r["positive"] for r in rows if r["query"] == row["query"]} - {row["positive"]}
    ranked = sorted(corpus, key=lambda text: -table.value(row["query"], text))  # equal ones stay in order
    return [text for text in ranked if text not in others].index(row["positive"]) + 1


def test_the_kept_rows_equal_those_of_a_full_ranking(pairs, trip, tmp_path, rows_of, monkeypatch):
    monkeypatch.setattr("mar_st.mining.miner.BLOCK_QUERIES", 7)
    counts = trip(pairs, depth=9)
    rows, table = rows_of(pairs), Table()
    corpus = list(dict.fromkeys(row["positive"] for row in rows))
    ranks = [naive_rank(table, row, rows, corpus) for row in rows]
    kept, dropped = rows_of(tmp_path / "out/pairs.jsonl"), rows_of(tmp_path / "out/dropped.jsonl")
    ranked = list(zip(rows, ranks, strict=True))
    assert [(r["query"], r["positives"]) for r in kept] == [
        (row["query"], [row["positive"]]) for row, rank in ranked if rank <= 9
    ]
    assert [(r["query"], r["positive"], r["reason"]) for r in dropped] == [
        (row["query"], row["positive"], "not-found") for row, rank in ranked if rank > 9
    ]
    assert 3 < len(kept) == counts["rows"] < 40


def test_a_negative_is_drawn_from_the_best_without_positives(pairs, trip, tmp_path, rows_of):
    trip(pairs, depth=60, negatives=1)
    given = rows_of(pairs)
    known = {row["query"]: {r["positive"] for r in given if r["query"] == row["query"]} for row in given}
    drawn = [(row["query"], *row["negatives"]) for row in rows_of(tmp_path / "out/triples.jsonl")]
    assert len(drawn) == 60
    assert all(len(row) == 2 and row[1] not in known[row[0]] for row in drawn)
    assert len(set(drawn)) == 50  # rows of one query get the same


def test_other_positives_of_a_query_take_no_rank_and_never_become_negatives(
    trip, tmp_path, write, rows_of, monkeypatch
):
    monkeypatch.setattr(MODULE, "TOP", 1)
    rows = [
        {"query": "感冒多喝水", "positive": "感冒多喝水"},
        {"query": "感冒多喝水", "positive": "感冒要多喝水", "negatives": ["感冒多喝水", "感冒喝水的次数"]},
        {"query": "感冒多喝水", "positive": "口渴时喝水就够了"},
    ]
    counts = trip(write(tmp_path / "rows.jsonl", rows), retriever=BM25(), depth=1)
    # The second is second to the first alone, and the third is behind a document that is not a positive.
    assert [row["positives"] for row in rows_of(tmp_path / "out/pairs.jsonl")] == [["感冒多喝水"]]
    (kept,) = rows_of(tmp_path / "out/triples.jsonl")
    assert kept["positives"] == ["感冒要多喝水"]
    assert kept["negatives"] == ["感冒喝水的次数"]
    assert counts["details"]["dropped"] == {"not-found": 1}


def test_a_corpus_makes_it_harder_and_a_test_query_is_dropped(run_step, tmp_path, write, rows_of):
    pairs = write(tmp_path / "pairs.jsonl", [{"query": "高血压饮食", "positive": "高血压患者宜低盐。"}])
    rows = [{"_id": f"c{i}", "text": f"高血压饮食第{i}条"} for i in range(3)]
    corpus = write(tmp_path / "corpus.jsonl", rows)
    common = {"pairs": pairs, "retriever": "bm25"}
    assert run_step(ROUND_TRIP, "a", **common)["rows"] == 1
    assert run_step(ROUND_TRIP, "b", **common, documents=corpus)["rows"] == 0
    assert rows_of(tmp_path / "b/dropped.jsonl")[0]["reason"] == "not-found"
    test = write(tmp_path / "test.jsonl", [{"_id": "t", "text": "高血压饮食？"}])
    assert run_step(ROUND_TRIP, "c", **common, against=(test,))["details"]["dropped"] == {"test-query": 1}


@pytest.mark.parametrize("settings", [{"depth": 0}, {"depth": 101}, {"negatives": 101}, {"negatives": -1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        ROUND_TRIP.settings(out="o", pairs="p", retriever="bm25", **settings)
