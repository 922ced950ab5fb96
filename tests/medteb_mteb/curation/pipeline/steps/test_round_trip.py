"""The step `round-trip`: pairs whose document its retriever finds, with negatives if it draws any."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pooling.pool import open_retriever
from medteb_mteb.curation.training import RoundTrip, round_trip

STEP = {"step": "round-trip", "pairs": "pairs.jsonl", "retriever": "bm25"}


@pytest.fixture
def pairs(texts, save, rows_of, tmp_path):
    """Each query with the first document of its disease."""
    queries, documents = (rows_of(tmp_path / f"{name}.jsonl") for name in ("queries", "documents"))
    rows = [
        {"query": query["text"], "positive": documents[place // 3 * 4]["text"]}
        for place, query in enumerate(queries)
    ]
    return save("pairs.jsonl", rows)


def test_every_option_reaches_the_settings(parsed):
    options = {"depth": 2, "negatives": 4, "top": 50, "seed": 7}
    assert asdict(parsed(**STEP, **options).settings()) == options
    assert parsed(**STEP).settings() == RoundTrip()


@pytest.mark.parametrize("options", [{"depth": 1}, {"negatives": 2, "top": 20, "depth": 2, "seed": 1}])
def test_the_step_writes_what_the_function_writes(made, pairs, files_of, tmp_path, options):
    result, folder = made({**STEP, **options, "documents": "documents.jsonl"})
    by_hand = round_trip(
        pairs,
        tmp_path / "by-hand",
        open_retriever("bm25"),
        RoundTrip(**options),
        documents=tmp_path / "documents.jsonl",
        show_progress=False,
    )
    assert files_of(folder) == files_of(tmp_path / "by-hand")
    assert {**result, "folder": ""} == {**by_hand.to_json(), "folder": ""}
    assert 0 < result["kept"] < result["read"]


@pytest.mark.parametrize(("negatives", "name"), [(0, "pairs.jsonl"), (1, "triples.jsonl")])
def test_a_later_step_reads_the_file_of_the_rows_that_are_kept(made, pairs, negatives, name):
    again = {**STEP, "name": "again", "pairs": "round-trip"}
    result, folder = made({**STEP, "negatives": negatives, "depth": 1}, again)
    kept = (folder.parent / "round-trip" / name).read_text(encoding="utf-8").splitlines()
    assert 0 < result["rows"]["read"] == len(kept)


def test_queries_of_a_test_are_dropped(made, pairs, save):
    save("held-out.jsonl", [{"_id": "t1", "text": "失眠怎么治疗"}])
    result, _ = made({**STEP, "against": ["held-out.jsonl"], "threshold": 0.9})
    assert result["dropped"]["test-query"] == 1


def test_a_forecast_is_the_number_of_pairs_at_most(planned, pairs):
    plan = planned(STEP)
    assert (plan.writes.items, plan.writes.exact, plan.charges) == (36, False, ())


def test_impossible_depths_are_refused_before_anything_is_searched(planned, pairs):
    with pytest.raises(BuildError, match="depth must be between 1 and top"):
        planned({**STEP, "depth": 9, "top": 8})
