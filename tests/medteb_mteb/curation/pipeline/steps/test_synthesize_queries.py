"""The step `synthesize-queries`: pairs of queries and documents, and the requests for them."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.pooling.pool import open_retriever
from medteb_mteb.curation.synthetic import QuerySettings
from medteb_mteb.curation.training import round_trip

ASKED = {"step": "synthesize-queries", "name": "asked", "documents": "documents.jsonl", "shortest": 5}
DOCUMENTS = {"step": "anonymize", "name": "documents", "in": "documents.jsonl"}


def test_every_option_reaches_the_settings(parsed):
    options = {
        "language": "en",
        "per_document": 3,
        "forms": {"question": 0.5, "case": 0.5},
        "shortest": 30,
        "longest": 900,
        "sample": 8,
        "seed": 7,
        "instruction": "Find the answer.",
    }
    step = parsed(**{**ASKED, **options, "origin": "clinic"})
    assert asdict(step.settings()) == {**options, "source": "clinic"}
    assert parsed(step="synthesize-queries", documents="d.jsonl").settings() == QuerySettings()


def test_the_prompts_are_those_of_the_language(parsed, llm):
    versions = {parsed(**ASKED, language=language).prompts() for language in ("zh", "en")}
    assert len(versions) == 2


def test_pairs_are_written_with_their_origin_and_read_by_the_next_step(made, rows_of, server, llm, tmp_path):
    options = {"sample": 8, "per_document": 2, "origin": "clinic", "instruction": "找出答案。"}
    trip = {"step": "round-trip", "pairs": "asked", "retriever": "bm25"}
    model = llm("questions", server)
    result, folder = made({**ASKED, **options}, trip, url=server, llm=model, already_anonymous=True)
    pairs = rows_of(folder.parent / "asked" / "pairs.jsonl")
    assert {(row["source"], row["instruction"]) for row in pairs} == {("clinic", "找出答案。")}
    assert 0 < len(pairs) <= 16
    by_hand = round_trip(
        folder.parent / "asked" / "pairs.jsonl", tmp_path / "r", open_retriever("bm25"), show_progress=False
    )
    assert (result["read"], result["kept"]) == (by_hand.read, by_hand.kept)


def test_queries_of_a_test_are_dropped(made, rows_of, save, server, llm):
    settings = {"url": server, "llm": llm("questions", server), "already_anonymous": True}
    _, folder = made({**ASKED, "sample": 4}, **settings)
    (first, *others) = [row["query"] for row in rows_of(folder / "pairs.jsonl")]
    save("held-out.jsonl", [{"_id": "t1", "text": first}])
    kept_away = {**ASKED, "sample": 4, "name": "away", "against": ["held-out.jsonl"], "threshold": 1.0}
    result, folder = made(kept_away, **settings)
    assert [row["query"] for row in rows_of(folder / "pairs.jsonl")] == [q for q in others if q != first]
    assert (result["dropped"]["test-query"], result["bought"]) == (1 + others.count(first), 0)


@pytest.mark.parametrize(
    ("options", "requests", "pairs"),
    [({}, 48, 49), ({"per_document": 3}, 48, 147), ({"sample": 8, "per_document": 2}, 8, 16)],
)
def test_requests_are_counted_once_the_documents_exist(planned, llm, options, requests, pairs):
    plan = planned({**ASKED, **options}, llm=llm("questions"))
    (charge,) = plan.charges
    # The copy of a document is not asked about.
    assert (charge.requests, charge.exact) == (requests, True)
    assert (plan.writes.items, plan.writes.exact) == (pairs, False)


@pytest.mark.parametrize("options", [{}, {"sample": 8}, {"per_document": 5}])
def test_before_the_documents_exist_the_forecast_is_a_bound(write, quiet, llm, options):
    steps = [DOCUMENTS, {**ASKED, "documents": "documents", **options}]
    path = write(steps=steps, llm=llm("questions", price_in=1.0, price_out=2.0))
    (before,) = building.forecast(path).steps[-1].charges
    quiet(path, until="documents")
    (after,) = building.forecast(path).steps[-1].charges
    assert (before.exact, after.exact) == (False, True)
    assert 0 < after.requests <= before.requests
    assert after.tokens_out <= before.tokens_out
