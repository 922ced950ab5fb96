"""The step `triples`: documents of pools sorted by an LLM, and the requests for it."""

from __future__ import annotations

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import TwoLists

BOTH = {"queries": "queries.jsonl", "documents": "documents.jsonl"}
POOL = {"step": "pool", **BOTH, "retrievers": ["bm25"], "size": 8}
TRIPLES = {"step": "triples", **BOTH, "pools": "pool"}


def test_every_option_reaches_the_settings(parsed):
    options = {
        "depth": 20, "prompt_tokens": 9000, "control_rate": 0.5, "negatives": 3, "choose": "random", "seed": 7
    }  # fmt: skip
    step = parsed(**TRIPLES, **options, documents_per_prompt=4)
    assert step.settings() == TwoLists(**options, documents=4)
    assert parsed(**TRIPLES).settings() == TwoLists()


def test_triples_have_no_more_negatives_than_asked_for_and_no_query_of_a_test(
    made, rows_of, save, server, llm
):
    save("held-out.jsonl", [{"_id": "t1", "text": "失眠怎么治疗"}])
    step = {**TRIPLES, "depth": 6, "negatives": 2, "against": ["held-out.jsonl"], "threshold": 0.9}
    result, folder = made(POOL, step, url=server, llm=llm("sorter", server), already_anonymous=True)
    rows = rows_of(folder / "triples.jsonl")
    assert len(rows) == result["counts"]["triples"] > 0
    assert {len(row["negatives"]) for row in rows} <= {1, 2}
    assert result["dropped"]["test-query"] == 1
    assert "失眠怎么治疗" not in {row["query"] for row in rows}


@pytest.mark.parametrize("options", [{}, {"depth": 5}, {"documents_per_prompt": 3}, {"prompt_tokens": 1500}])
def test_before_the_pools_exist_the_forecast_is_a_bound(write, quiet, llm, options):
    path = write(
        steps=[POOL, {**TRIPLES, **options}], llm=llm("sorter", price_in=1.0), already_anonymous=True
    )
    before = building.forecast(path).steps[-1]
    quiet(path, until="pool")
    after = building.forecast(path).steps[-1]
    (bound,), (counted,) = before.charges, after.charges
    assert (bound.exact, counted.exact) == (False, True)
    assert 0 < counted.requests <= bound.requests
    assert (before.writes.items, before.writes.exact) == (36, False)


def test_queries_of_a_test_cost_nothing(planned, save, quiet, write, llm):
    save("held-out.jsonl", [{"_id": "t1", "text": "失眠怎么治疗"}])
    quiet(write(steps=[POOL]))
    step = {**TRIPLES, "threshold": 0.9}
    (every,), (fewer,) = (
        planned(POOL, one, llm=llm("sorter")).charges
        for one in (step, {**step, "against": ["held-out.jsonl"]})
    )
    assert every.requests - fewer.requests == every.requests // 36


def test_impossible_settings_are_refused_before_anything_is_sent(planned, llm):
    with pytest.raises(BuildError, match="prompt_tokens is at least"):
        planned(POOL, {**TRIPLES, "prompt_tokens": 10}, llm=llm("sorter"))
