"""The step `sts`: pairs of sentences from rewrites of queries, and the requests for them."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError

QUERIES = {"step": "anonymize", "name": "queries", "in": "queries.jsonl"}
STS = {
    "step": "sts", "dictionary": "synonyms.tsv", "queries": "queries.jsonl", "edition": "clinic",
    "licence": "mit", "test": 0.4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _dictionary(synonyms):
    pass


def test_every_option_reaches_the_settings(parsed):
    options = {
        "licence": "cc-by-4.0",
        "version": "2.1.0",
        "test": 12.0,
        "probabilities": (0.5, 0.3, 0.2),
        "tolerance": 0.25,
        "per_entry": 3,
        "limit": 9,
        "threshold": 0.7,
        "seed": 7,
    }
    assert asdict(parsed(**{**STS, **options}).settings()) == {"name": "clinic", **options}


def test_the_edition_of_the_rewrites_is_reported_and_published(made, llm, server, files_of):
    result, folder = made(STS, url=server, llm=llm("rewriter", server), already_anonymous=True)
    assert set(result["editions"]) == {"MedTEBSTS"}
    assert "edition" not in result
    assert result["editions"]["MedTEBSTS"]["counts"]["test"] > 0
    assert result["bought"] == 18  # six diseases have a synonym
    published, own = files_of(folder.parent / "data"), files_of(folder)
    assert published == {name: own[name] for name in own if not name.startswith("sts/")}


def test_queries_of_training_data_are_left_out_of_the_test(made, llm, server, rows_of, save):
    settings = {"url": server, "llm": llm("rewriter", server), "already_anonymous": True}
    _, folder = made(STS, **settings)
    tested = {row["sentence1"] for row in rows_of(folder / "MedTEBSTS" / "test.jsonl")}
    queries = [row["text"] for row in rows_of(folder.parent.parent / "queries.jsonl")]
    (leak, *_) = [query for query in queries if query in tested]
    save("training.jsonl", [{"query": leak, "positive": "a", "negative": "b"}])
    step = {**STS, "against": ["training.jsonl"], "threshold": 0.9}
    result, folder = made(step, **settings, out="other", answers="build/answers.sqlite")
    assert result["bought"] == 0
    assert leak not in {row["sentence1"] for row in rows_of(folder / "MedTEBSTS" / "test.jsonl")}


@pytest.mark.parametrize(
    ("options", "requests"), [({}, 18), ({"limit": 5}, 5), ({"per_entry": 2}, 12), ({"per_entry": 1}, 6)]
)
def test_requests_are_counted_once_the_queries_exist(planned, llm, options, requests):
    (charge,) = planned({**STS, **options}, llm=llm("rewriter")).charges
    assert (charge.name, charge.requests, charge.exact) == ("rewriter", requests, True)


@pytest.mark.parametrize("options", [{}, {"limit": 5}])
def test_before_the_queries_exist_the_forecast_is_a_bound(write, quiet, llm, options):
    path = write(steps=[QUERIES, {**STS, "queries": "queries", **options}], llm=llm("rewriter", price_in=1.0))
    (before,) = building.forecast(path).steps[-1].charges
    quiet(path, until="queries")
    (after,) = building.forecast(path).steps[-1].charges
    assert (before.exact, after.exact) == (False, True)
    assert before.requests == options.get("limit", 36)
    assert after.requests <= before.requests
    assert 0 < after.cost <= before.cost


def test_a_step_without_an_llm_or_with_other_probabilities_is_refused(planned, llm):
    with pytest.raises(BuildError, match="Step 'sts' needs an LLM"):
        planned(STS)
    with pytest.raises(BuildError, match=r"with a sum of 1 are expected; got 0\.5, 0\.5, 0\.5"):
        planned({**STS, "probabilities": [0.5, 0.5, 0.5]}, llm=llm("rewriter"))
