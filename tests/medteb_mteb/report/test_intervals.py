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


def test_invalid_samples_are_refused():
    with pytest.raises(ValueError, match="at least two items"):
        bootstrap_interval(MeanSample(np.array([0.5])))
    with pytest.raises(ValueError, match="undefined in most resamples"):
        bootstrap_interval(CorrelationSample(np.ones(9), np.arange(9.0), "pearson"))
