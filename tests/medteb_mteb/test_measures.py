from __future__ import annotations

import random

import pytest
import pytrec_eval

from medteb_mteb.measures import Judged, QueryScores, means, ranked, score_queries

MEASURES = {"ndcg_cut.10", "bpref"}


def make(seed):
    """Graded qrels, judged negatives and a run with ties over 60 documents."""
    rng = random.Random(seed)
    names = [f"d{i:02d}" for i in range(60)]
    qrels, negatives, run = {}, {}, {}
    for query in ("q1", "q2", "q3"):
        judged = rng.sample(names, rng.randint(2, 25))
        cut = rng.randint(1, len(judged) - 1)
        qrels[query] = {name: rng.randint(1, 3) for name in judged[:cut]}
        negatives[query] = frozenset(judged[cut:])
        run[query] = {name: rng.randint(0, 20) / 4 for name in rng.sample(names, rng.randint(5, 50))}
    return qrels, Judged(negatives), run


@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_trec_eval(seed):
    qrels, judged, run = make(seed)
    everything = {q: {**row, **dict.fromkeys(judged.negatives[q], 0)} for q, row in qrels.items()}
    plain = pytrec_eval.RelevanceEvaluator(everything, MEASURES).evaluate(run)
    # trec_eval -J
    condensed = pytrec_eval.RelevanceEvaluator(everything, MEASURES, judged_docs_only_flag=True).evaluate(run)
    by_query = score_queries(qrels, judged, run)
    assert set(by_query) == set(qrels)
    for query, scores in by_query.items():
        assert scores.ndcg == pytest.approx(plain[query]["ndcg_cut_10"])
        assert scores.bpref == pytest.approx(plain[query]["bpref"])
        assert scores.condensed == pytest.approx(condensed[query]["ndcg_cut_10"])
        first = sorted(run[query], key=lambda d: (run[query][d], d), reverse=True)[:10]
        assert scores.judged == sum(d in everything[query] for d in first) / len(first)


def test_disputed_documents_leave_the_ranking():
    qrels, run = {"q": {"a": 1}}, {"q": {"x": 3.0, "a": 2.0, "n": 1.0}}
    negatives = {"q": frozenset({"n"})}
    kept = score_queries(qrels, Judged(negatives), run)["q"]
    left_out = score_queries(qrels, Judged(negatives, {"q": frozenset({"x"})}), run)["q"]
    assert (kept.judged, left_out.judged) == (2 / 3, 1.0)
    assert left_out.ndcg == 1.0 > kept.ndcg


def test_queries_that_found_nothing_score_0_and_hide_no_hole():
    qrels, judged = {"q": {"a": 1}, "p": {"b": 1}}, Judged({"q": frozenset({"n"})})
    scores = score_queries(qrels, judged, {"q": {"a": 1.0}, "p": {}})
    assert scores["p"] == QueryScores(0.0, None, 0.0, 0.0)
    mean = means(scores.values())
    assert (mean.ndcg, mean.judged) == (0.5, 1.0)


def test_equal_scores_are_ordered_as_trec_eval_does():
    assert ranked({"a": 1.0, "c": 1.0, "b": 2.0}) == ["b", "c", "a"]
