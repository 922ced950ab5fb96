"""Length bias measured against experts: also one that all judges share."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from medteb_mteb.curation.labels.grades import Judgement
from medteb_mteb.curation.labels.sheet import Experts, SheetPair
from medteb_mteb.validate.bias import length_bias
from medteb_mteb.validate.dominance import Graded, binned, rank_correlation
from medteb_mteb.validate.expert_lengths import LABELS_ROW, length_bias_by_experts

QUERIES, EACH = 60, 20


def material(*, beyond=0.0, drawn=1.0, judges=("one", "two")):
    """Pairs of which experts call 40 % positive, whatever their length; judges err on long ones.

    Args:
        beyond: Share of the long negatives that every judge calls positive.
        drawn: Share of the negatives by the labels that experts see; of positives all.
        judges: Their names.
    """
    draw = np.random.default_rng(5)
    corpus, judgements, answers, rows, strata = [], [], {}, {}, {"positive": 0, "negative": 0}
    for query in range(QUERIES):
        for place in range(EACH):
            pair = (f"q{query}", f"d{query}-{place}")
            length = int(draw.integers(10, 400))
            corpus.append({"id": pair[1], "title": "", "text": "字" * length})
            truth = int(draw.random() < 0.4)
            said = int(truth or (length > 200 and draw.random() < beyond))
            judgements += [Judgement(*pair, judge, "S" if said else "D") for judge in judges]
            stratum = "positive" if said else "negative"
            strata[stratum] += 1
            if said or draw.random() < drawn:
                rows[pair] = SheetPair(len(rows) + 1, *pair, said, stratum)
                answers[pair] = truth
    experts = Experts(answers, rows, strata)
    return SimpleNamespace(experts=experts, judgements=tuple(judgements), data=SimpleNamespace(corpus=corpus))


def test_only_experts_reveal_a_bias_that_all_judges_share():
    shared = material(beyond=0.6)
    assert length_bias(shared).verdict == "ok"  # the judges agree with each other
    seen = length_bias_by_experts(shared)
    assert seen.verdict == "fail"
    for name in (LABELS_ROW, "one", "two"):
        assert seen.numbers[f"{name}, rank correlation beyond the experts, low"] > 0.1
    assert "Take other judges" in seen.reason
    assert [row[0] for row in seen.table.rows] == [LABELS_ROW, "one", "two"]


def test_judges_that_agree_with_experts_have_no_length_bias():
    seen = length_bias_by_experts(material())
    assert seen.verdict == "ok"
    assert seen.numbers["one, rank correlation beyond the experts"] == 0.0
    assert abs(seen.numbers["one, rank correlation with the length"]) < 0.1


def test_a_sample_that_favours_positives_gives_the_same_bias():
    every = length_bias_by_experts(material(beyond=0.6)).numbers
    some = length_bias_by_experts(material(beyond=0.6, drawn=0.3)).numbers
    key = "experts on the pairs of one, rank correlation with the length"
    assert some["pairs seen by experts"] < 0.8 * every["pairs seen by experts"]
    for name in (key, "one, rank correlation with the length"):
        assert some[name] == pytest.approx(every[name], abs=0.06)


def test_a_pair_of_weight_two_equals_a_repeated_pair():
    draw = np.random.default_rng(0)
    queries, grades = draw.integers(0, 8, 200), draw.integers(0, 2, 200)
    bins, twice = binned(draw.random(200)), draw.integers(1, 3, 200)
    weighted = rank_correlation(Graded(queries, grades, bins, twice.astype(float)), 8)
    repeated = rank_correlation(Graded(*(np.repeat(one, twice) for one in (queries, grades, bins))), 8)
    assert weighted == repeated


def test_length_bias_is_not_known_with_too_few_answers():
    sparse = material()
    sparse.experts = None
    assert length_bias_by_experts(sparse).verdict == "not known"
    sparse = material()
    kept = dict(list(sparse.experts.answers.items())[:30])
    sparse.experts = Experts(kept, sparse.experts.drawn, sparse.experts.pairs)
    few = length_bias_by_experts(sparse)
    assert (few.verdict, few.table.rows[0][-1]) == ("not known", "too few")
