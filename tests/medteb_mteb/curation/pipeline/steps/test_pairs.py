"""The step `pairs`: texts of several sources, each with the share that is named for it."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import Weighted, alignment_sets

PAIRS = {"step": "pairs", "queries": ["queries.jsonl"], "documents": ["documents.jsonl"]}


def test_shares_belong_to_their_sources_by_name(made, save, files_of, tmp_path):
    save("more.jsonl", [{"_id": f"m{i}", "text": f"另一个问题{i}"} for i in range(20)])
    step = {**PAIRS, "queries": ["queries.jsonl", "more.jsonl"]}
    result, folder = made({**step, "shares": {"more.jsonl": 0.25, "documents.jsonl": 0.5}, "seed": 3})
    assert [source["weight"] for source in result["sources"]] == [1.0, 0.25, 0.5]
    assert [source["kept"] for source in result["sources"]] == [36, 5, 24]
    queries, more, documents = (str(tmp_path / f"{name}.jsonl") for name in ("queries", "more", "documents"))
    by_hand = tmp_path / "by-hand"
    weighted = [Weighted(queries), Weighted(more, 0.25)]
    alignment_sets(by_hand, weighted, [Weighted(documents, 0.5)], seed=3, show_progress=False)
    assert files_of(folder) == files_of(by_hand)


def test_a_share_may_be_that_of_an_earlier_step(made):
    dedup = {"step": "dedup", "in": "documents.jsonl", "threshold": 1.0}
    result, folder = made(dedup, {"step": "pairs", "documents": ["dedup"], "shares": {"dedup": 0.5}})
    assert result["kept"] == {"document": 24}
    assert not (folder / "queries.jsonl").exists()


def test_queries_of_a_test_are_dropped_and_documents_are_not(made, save):
    rows = ["失眠怎么治疗", "失眠是常见病。", "哮喘会传染吗呢"]
    save("held-out.jsonl", [{"_id": text, "text": text} for text in rows])
    step = {**PAIRS, "against": ["held-out.jsonl"]}
    assert made({**step, "threshold": 0.95})[0]["kept"] == {"query": 35, "document": 48}
    assert made({**step, "name": "strict"})[0]["kept"] == {"query": 34, "document": 48}


def test_a_forecast_is_the_number_of_texts_at_most(planned):
    assert planned(PAIRS).writes.items == 36 + 49
    assert planned({"step": "pairs", "queries": ["queries.jsonl"]}).writes.items == 36


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": {"documents": 0.5}}, "a share of 'documents', which is none of its sources"),
        ({"shares": {"queries.jsonl": 0}}, "a share is above 0 and up to 1; that of 'queries.jsonl' is 0"),
        ({"shares": {"queries.jsonl": 1.5}}, "that of 'queries.jsonl' is 1.5"),
        ({"queries": [], "documents": []}, "Step 'pairs' needs queries or documents"),
    ],
)
def test_impossible_shares_are_refused(planned, changes, message):
    with pytest.raises(BuildError, match=message):
        planned({**PAIRS, **changes})
