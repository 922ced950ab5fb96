from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import average_precision_score

from medteb_mteb.report.intervals import (
    AveragePrecisionSample,
    CorrelationSample,
    MeanSample,
    bootstrap_interval,
    compare,
    score_of,
)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def pairs(rng, items=60):
    """Gold scores and predictions with many ties."""
    gold = rng.integers(0, 5, items).astype(float)
    return gold, np.round(gold + rng.normal(0, 2, items))


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_weighted_correlation_is_the_correlation_of_the_repeated_items(rng, method):
    gold, predicted = pairs(rng)
    reference = {"pearson": pearsonr, "spearman": spearmanr}[method]
    sample = CorrelationSample(gold, predicted, method)
    weights = rng.integers(0, 4, (5, len(gold))).astype(float)
    expected = [
        reference(np.repeat(gold, w.astype(int)), np.repeat(predicted, w.astype(int)))[0] for w in weights
    ]
    np.testing.assert_allclose(sample.statistic(weights), expected, atol=1e-10)
    assert score_of(sample) == pytest.approx(reference(gold, predicted)[0])


def test_weighted_average_precision_is_that_of_the_repeated_items(rng):
    labels = rng.integers(0, 2, 50).astype(float)
    scores = np.round(labels + rng.normal(0, 1, (3, 50)), 1)  # rounded, so that there are ties
    sample = AveragePrecisionSample(labels, scores)
    weights = rng.integers(0, 4, (4, 50)).astype(float)
    expected = [
        max(average_precision_score(np.repeat(labels, w), np.repeat(row, w)) for row in scores)
        for w in weights.astype(int)
    ]
    np.testing.assert_allclose(sample.statistic(weights), expected, atol=1e-10)


def test_interval_of_a_mean_has_the_width_that_theory_gives(rng):
    values = rng.normal(0.5, 0.2, 400)
    interval = bootstrap_interval(MeanSample(values))
    expected = 2 * 1.96 * values.std() / np.sqrt(400)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.08)
    assert interval.low < values.mean() < interval.high


def test_intervals_cover_the_true_mean_about_as_often_as_they_say(rng):
    inside = 0
    for _ in range(200):
        interval = bootstrap_interval(MeanSample(rng.binomial(1, 0.4, 100).astype(float)), resamples=400)
        inside += interval.low <= 0.4 <= interval.high
    assert 180 <= inside <= 199


def test_the_same_seed_gives_the_same_interval(rng):
    sample = CorrelationSample(*pairs(rng), "spearman")
    first = bootstrap_interval(sample, resamples=300)
    assert bootstrap_interval(sample, resamples=300) == first
    assert bootstrap_interval(sample, resamples=300, seed=1) != first


def test_equal_systems_do_not_differ_and_better_ones_do(rng):
    values = rng.uniform(0, 1, 80)
    same = compare(MeanSample(values), MeanSample(values))
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
    better = compare(MeanSample(values + rng.normal(0.1, 0.05, 80)), MeanSample(values))
    assert better.low > 0
    assert better.p_value < 0.01
    noise = compare(MeanSample(values + rng.normal(0, 0.05, 80)), MeanSample(values))
    assert noise.p_value > 0.05


def test_pairing_makes_a_small_steady_gain_visible(rng):
    values = rng.uniform(0, 1, 60)
    gained = values + 0.02
    paired = compare(MeanSample(gained), MeanSample(values))
    assert paired.low == pytest.approx(0.02)
    alone = bootstrap_interval(MeanSample(values))
    assert alone.high - alone.low > 0.1  # far wider than the gain


def test_correlations_are_compared_on_the_same_resamples(rng):
    gold, predicted = pairs(rng, 300)
    close = CorrelationSample(gold, gold + rng.normal(0, 0.5, 300), "pearson")
    far = CorrelationSample(gold, predicted, "pearson")
    comparison = compare(close, far)
    assert comparison.low > 0
    assert comparison.p_value < 0.01
    assert compare(far, close).difference == -comparison.difference


def test_invalid_samples_are_refused():
    with pytest.raises(ValueError, match="at least two items"):
        bootstrap_interval(MeanSample(np.array([0.5])))
    with pytest.raises(ValueError, match="undefined in most resamples"):
        bootstrap_interval(CorrelationSample(np.ones(9), np.arange(9.0), "pearson"))
    with pytest.raises(ValueError, match="got 2 and 3"):
        compare(MeanSample(np.zeros(2)), MeanSample(np.zeros(3)))
