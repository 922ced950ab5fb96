from __future__ import annotations

import random
from math import log2

import pytest
import pytrec_eval

from medteb_mteb.nano.measures import score_rankings


def test_measures_equal_values_computed_manually():
    # q1: two positives at ranks 2 and 4; q2: one of three, at rank 20; q3: nothing retrieved
    rankings = {
        "q1": ["x", "a", "y", "b"],
        "q2": [f"n{i}" for i in range(19)] + ["c"],
    }
    positives = {"q1": ["a", "b"], "q2": ["c", "d", "e"], "q3": ["f"], "q4": []}
    scores = score_rankings(rankings, positives)
    ideal = 1 + 1 / log2(3)
    assert scores.ndcg_at_10 == pytest.approx((1 / log2(3) + 1 / log2(5)) / ideal / 3)
    assert (scores.hit_at_1, scores.hit_at_10, scores.hit_at_100) == pytest.approx((0, 1 / 3, 2 / 3))
    assert scores.recall_macro_at_10 == pytest.approx(1 / 3)
    assert scores.recall_macro_at_100 == pytest.approx((1 + 1 / 3) / 3)
    assert scores.recall_micro_at_10 == pytest.approx(2 / 6)
    assert scores.recall_micro_at_100 == pytest.approx(3 / 6)
    assert scores.mrr_at_10 == pytest.approx(0.5 / 3)
    assert scores.map_capped_at_100 == pytest.approx((0.5 + (1 / 20) / 3) / 3)


def test_trec_eval_gives_the_same_where_both_have_a_measure():
    draw = random.Random(0)
    documents = [f"d{i}" for i in range(300)]
    rankings = {f"q{i}": draw.sample(documents, 150) for i in range(20)}
    positives = {query: draw.sample(documents, draw.randint(1, 30)) for query in rankings}
    scores = score_rankings(rankings, positives)
    run = {q: {d: 1000.0 - rank for rank, d in enumerate(ids)} for q, ids in rankings.items()}
    qrels = {q: dict.fromkeys(ids, 1) for q, ids in positives.items()}
    measures = {"ndcg_cut.10", "recall.10,100", "success.1,10", "map_cut.100"}
    rows = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run).values()

    def mean(name):
        return sum(row[name] for row in rows) / len(rows)

    assert scores.ndcg_at_10 == pytest.approx(mean("ndcg_cut_10"))
    assert scores.recall_macro_at_10 == pytest.approx(mean("recall_10"))
    assert scores.recall_macro_at_100 == pytest.approx(mean("recall_100"))
    assert (scores.hit_at_1, scores.hit_at_10) == pytest.approx((mean("success_1"), mean("success_10")))
    assert scores.map_capped_at_100 == pytest.approx(
        mean("map_cut_100")
    )  # nobody has more than 100 positives


def test_map_is_divided_by_what_can_be_reached():
    positives = {"q": [f"d{i}" for i in range(200)]}
    assert score_rankings({"q": positives["q"][:100]}, positives).map_capped_at_100 == pytest.approx(1)


def test_documents_beyond_rank_100_do_not_count():
    ranking = [f"n{i}" for i in range(100)] + ["a"]
    scores = score_rankings({"q": ranking}, {"q": ["a"]})
    assert scores.recall_micro_at_100 == scores.hit_at_100 == 0


def test_a_repeated_document_is_refused():
    with pytest.raises(ValueError, match="'q' holds a document twice"):
        score_rankings({"q": ["a", "a"]}, {"q": ["a"]})
    with pytest.raises(ValueError, match="No query has a positive"):
        score_rankings({"q": ["a"]}, {"q": []})
