from __future__ import annotations

from collections import Counter

import pytest

from mar_st.mining.rules import MinedQuery, Picker, Rules, grams, near

CORPUS = ["高血压吃什么药", "高血压吃什么药好", "感冒怎么办", "头疼发热", "咳嗽吃什么", "医生你好"]


def _pick(question, lists, scores=None, corpus=CORPUS, **rules):
    dropped = Counter()
    # With as many negatives as there are ranks, nothing is drawn.
    rules = {"num_negatives": 6, "range_max": 6, "near_duplicate": None, "fill": False, **rules}
    picked = Picker(Rules(**rules), corpus).pick(question, lists, scores or {}, dropped)
    return picked, dropped


def _question(*positives, **more):
    return MinedQuery("问题", positives, frozenset(positives), **more)


def test_several_retrievers_are_fused_by_reciprocal_ranks():
    picked, _ = _pick(_question(), [[0, 1, 2], [1, 3, 2]])
    # 1: ranks 2 and 1; 2: 3 and 3; 0: 1; 3: 2
    assert picked.mined == [1, 2, 0, 3]


def test_margins_are_measured_from_the_lowest_positive():
    scores = {0: 0.9, 1: 0.5, 2: 0.46, 3: 0.44, 4: 0.30}
    question = _question(0, 1)
    lists = [[0, 1, 2, 3, 4]]
    picked, dropped = _pick(question, lists, scores, relative_margin=0.2)
    assert picked.mined == [4]
    assert dropped["within the margin"] == 2
    assert _pick(question, lists, scores, relative_margin=-0.1)[0].mined == [2, 3, 4]


def test_a_relative_margin_of_a_negative_score_goes_down_too():
    scores = {0: -1.0, 1: -1.05, 2: -1.2}
    assert _pick(_question(0), [[0, 1, 2]], scores, relative_margin=0.1)[0].mined == [2]


def test_near_duplicates_of_a_positive_or_the_query_are_dropped():
    assert near(grams(CORPUS[0]), grams(CORPUS[1]), 0.8)
    assert not near(grams(CORPUS[0]), grams(CORPUS[4]), 0.8)
    picked, dropped = _pick(_question(0), [[1, 2]], near_duplicate=0.8)
    assert (picked.mined, dropped["near-duplicate"]) == ([2], 1)
    alike = MinedQuery("感冒，怎么办？", (0,), frozenset({0}))
    assert _pick(alike, [[1, 2, 3]], near_duplicate=0.8)[0].mined == [3]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 1.0])
def test_near_is_the_jaccard_similarity(texts, threshold):
    sets = [grams(text) for text in texts[:40]] + [grams(CORPUS[0]), grams(CORPUS[1])]
    verdicts = [near(a, b, threshold) for a in sets for b in sets]
    assert verdicts == [len(a & b) / len(a | b) >= threshold for a in sets for b in sets]
    assert {True, False} == set(verdicts)


@pytest.mark.parametrize(
    "rules",
    [
        {"range_min": -1}, {"range_min": 5, "range_max": 5}, {"range_min": 1, "range_max": 5},
        {"num_negatives": -1}, {"num_negatives": 0}, {"consistent": 101},
        {"near_duplicate": 1.5}, {"relative_margin": float("nan")},
    ],
)  # fmt: skip
def test_impossible_rules_are_refused(rules):
    with pytest.raises(ValueError, match=next(iter(rules))):
        Rules(**rules)
