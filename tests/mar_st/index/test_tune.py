from __future__ import annotations

import math

import pytest

from mar_st.errors import MarError
from mar_st.index.tune import evaluate


def test_scores_are_those_of_the_definitions():
    qrels = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"x": 1}, "q3": {"y": 0}, "q4": {"z": 1}}
    run = {"q1": {"b": 3.0, "n": 2.0, "a": 1.0}, "q2": {"n": 2.0, "m": 1.0}, "q3": {"y": 1.0}}
    ideal = 2 + 1 / math.log2(3)
    scores = evaluate(run, qrels, 2)
    assert scores["queries"] == 3  # q3 has nothing relevant; q4, which found nothing, counts
    assert scores["ndcg@10"] == pytest.approx((1 + 2 / math.log2(4)) / ideal / 3)
    assert scores["recall@2"] == pytest.approx(0.5 / 3)
    assert scores["recall@10"] == pytest.approx(1 / 3)
    assert scores["mrr"] == pytest.approx(1 / 3)


def test_runs_of_other_queries_are_refused():
    with pytest.raises(MarError, match="belong to the same data"):
        evaluate({"q": {"a": 1.0}}, {"p": {"a": 1}}, 10)
