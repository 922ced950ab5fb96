from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from medteb_mteb.curation.labels.intervals import exact_interval, finite_interval
from medteb_mteb.curation.labels.sheet import Experts, SheetPair
from medteb_mteb.validate.accuracy import StratumAnswers, accuracy_of_labels, stratified
from medteb_mteb.validate.experts import corrected_mean


@pytest.mark.parametrize(
    ("successes", "drawn", "population"), [(0, 7, 30), (5, 7, 30), (7, 7, 9), (3, 8, 400)]
)
def test_the_interval_holds_what_neither_tail_refuses(successes, drawn, population):
    kept = [
        k / population
        for k in range(population + 1)
        if hypergeom.sf(successes - 1, population, k, drawn) > 0.025
        and hypergeom.cdf(successes, population, k, drawn) > 0.025
    ]
    low, high = finite_interval(successes, drawn, population)
    assert (low, high) == (kept[0], kept[-1])
    wide = exact_interval(successes, drawn)
    assert wide[0] <= low + 1 / population
    assert high - 1 / population <= wide[1]


def test_a_complete_sample_has_an_interval_of_width_zero():
    assert finite_interval(3, 10, 10) == (0.3, 0.3)
    assert np.isnan(finite_interval(0, 0, 10)[0])


def test_strata_count_by_their_sizes():
    estimate = stratified([StratumAnswers("a", 0, 900, 30, 3), StratumAnswers("b", 0, 100, 50, 40)])
    assert estimate.value == pytest.approx(0.9 * 0.1 + 0.1 * 0.8)
    assert estimate.low < estimate.value < estimate.high
    alone = StratumAnswers("a", 0, 900, 30, 3)
    assert stratified([alone]) == alone.share()


def test_intervals_of_strata_cover_the_truth_at_their_nominal_rate():
    draw, inside, sizes, rates = np.random.default_rng(5), 0, (300, 5000), (0.3, 0.05)
    for _ in range(500):
        truth = [draw.random(size) < rate for size, rate in zip(sizes, rates, strict=True)]
        parts = [
            StratumAnswers(str(i), 0, len(one), 60, int(draw.choice(one, 60, replace=False).sum()))
            for i, one in enumerate(truth)
        ]
        estimate = stratified(parts)
        inside += estimate.low <= np.concatenate(truth).mean() <= estimate.high
    assert inside / 500 > 0.93


@pytest.mark.thorough
def test_weights_correct_the_bias_of_unequal_draws():
    """A type of query with wrong labels is sampled ten times as often as the others."""
    draw, plain, weighted, inside = np.random.default_rng(6), [], [], 0
    for _ in range(300):
        odd = np.repeat(draw.random(200) < 0.2, 5)  # queries of the type, five documents each
        truth = np.where(odd, draw.random(1000) < 0.3, draw.random(1000) < 0.9).astype(int)
        seen, weights = [], []
        for kind, number in ((True, 60), (False, 30)):
            there = np.flatnonzero(odd == kind)
            seen += truth[draw.choice(there, number, replace=False)].tolist()
            weights += [len(there) / number] * number
        labels = [[1] * 5] * 200  # every label says positive
        plain.append(corrected_mean(labels, {1: seen}).value - truth.mean())
        estimate = corrected_mean(labels, {1: seen}, {1: weights})
        weighted.append(estimate.value - truth.mean())
        inside += estimate.low <= truth.mean() <= estimate.high
    assert abs(np.mean(weighted)) < 0.01 < 0.2 < abs(np.mean(plain))
    assert inside / 300 > 0.93


def test_equal_weights_change_nothing():
    labels, sampled = [[1, 0], [1, 1], [0, 0]], {1: [1, 1, 0], 0: [0, 0, 1, 0]}
    assert corrected_mean(labels, sampled, {1: [2.0] * 3, 0: [9.0] * 4}) == corrected_mean(labels, sampled)


def experts(**strata):
    """Answers by stratum: `positive=(pairs, seen, positive by the experts)`."""
    labels = {"positive": 1, "negative": 0, "disputed": None}
    drawn, answers, pairs = {}, {}, {}
    for name, (size, seen, positive) in strata.items():
        pairs[name] = size
        for i in range(seen):
            pair = (f"{name} q{i}", f"d{i}")
            drawn[pair] = SheetPair(len(drawn) + 1, *pair, labels[name.partition("_")[0]], name)
            answers[pair] = int(i < positive)
    return Experts(answers, drawn, pairs)


class Stub:
    """Material of which only the experts are looked at."""

    def __init__(self, given):
        self.experts = given


def test_misses_among_negatives_are_weighted_by_stratum_size():
    finding = accuracy_of_labels(
        Stub(experts(positive=(200, 40, 38), negative=(10_000, 50, 1), disputed=(30, 30, 6)))
    )
    assert finding.verdict == "warning"
    assert finding.numbers["positives confirmed"] == 0.95
    assert finding.numbers["negatives confirmed"] == 0.98
    # 190 of the positives, 200 of the negatives and 6 disputed pairs answer their queries.
    assert finding.numbers["share of the experts' positives that the labels find"] == round(190 / 396, 4)
    assert finding.numbers["accuracy of the labels, estimated"] == round((190 + 9800) / 10_200, 4)
    assert finding.numbers["positive by the experts among the disputed pairs, estimated"] == "6 [6, 6]"
    assert "find 48.0% of what experts call positive" in finding.reason
    assert [row[0] for row in finding.table.rows] == ["positive", "negative", "disputed"]


@pytest.mark.parametrize(("confirmed", "verdict"), [(38, "ok"), (33, "warning"), (20, "fail")])
def test_the_share_of_confirmed_positives_decides(confirmed, verdict):
    finding = accuracy_of_labels(Stub(experts(positive=(200, 40, confirmed), negative=(200, 40, 0))))
    assert finding.verdict == verdict


def test_a_total_stands_below_strata_of_one_label():
    finding = accuracy_of_labels(
        Stub(experts(positive_drug=(30, 30, 30), positive_diet=(300, 30, 24), negative=(500, 30, 0)))
    )
    assert [row[0] for row in finding.table.rows][-1] == "all positives"
    assert finding.numbers["positives confirmed"] == round((30 + 240) / 330, 4)


def test_accuracy_is_not_known_with_too_few_answers():
    assert accuracy_of_labels(Stub(None)).verdict == "not known"
    few = accuracy_of_labels(Stub(experts(positive=(200, 10, 10), negative=(200, 19, 0))))
    assert (few.verdict, "fewer than 20" in few.reason) == ("not known", True)
