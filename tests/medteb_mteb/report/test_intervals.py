from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import beta, pearsonr, spearmanr
from sklearn.metrics import average_precision_score

from medteb_mteb.report.intervals import (
    AveragePrecisionSample,
    CorrelationSample,
    GroupDifference,
    MeanSample,
    bootstrap_interval,
    difficulty,
    estimated,
    exact_interval,
    score_of,
    smallest_difference,
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


def test_the_same_seed_gives_the_same_interval(rng):
    sample = CorrelationSample(*pairs(rng), "spearman")
    first = bootstrap_interval(sample, resamples=300)
    assert bootstrap_interval(sample, resamples=300) == first
    assert bootstrap_interval(sample, resamples=300, seed=1) != first


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 8), (49, 50)])
def test_the_exact_interval_has_quantiles_of_the_beta_distribution_as_ends(successes, trials, level):
    """C. Clopper and E. Pearson, Biometrika 26 (1934); 0 and 1 where the distribution is not defined."""
    tail = (1 - level) / 2
    low = beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = beta.ppf(1 - tail, successes + 1, trials - successes) if successes < trials else 1.0
    assert exact_interval(successes, trials, level) == pytest.approx((low, high), abs=1e-9)


def test_no_trials_have_no_exact_interval():
    assert all(map(math.isnan, exact_interval(0, 0)))


@pytest.mark.parametrize(
    "sample",
    [MeanSample(np.array([0.5])), CorrelationSample(np.ones(9), np.arange(9.0), "pearson")],
    ids=["one item", "undefined"],
)
def test_too_few_items_or_an_undefined_statistic_have_no_interval(sample):
    with pytest.raises(ValueError, match=r"at least two|undefined"):
        bootstrap_interval(sample)
    assert np.isnan(estimated(sample)[1:]).all()


@pytest.mark.parametrize(("queries", "deviation"), [(12, 0.3), (400, 0.5)])
def test_the_smallest_difference_is_found_four_times_in_five(queries, deviation):
    """The test finds a mean of more than 1.96 standard errors on either side."""
    error = deviation / math.sqrt(queries)
    means = NormalDist(smallest_difference(queries, deviation), error)
    power = 1 - means.cdf(1.959964 * error) + means.cdf(-1.959964 * error)
    assert power == pytest.approx(0.8, abs=1e-4)


def regression(values, first, covariates, weights):
    """The coefficient of the group in ordinary least squares on items that are repeated `weights` times."""
    rows = np.repeat(np.arange(len(values)), weights.astype(int))
    design = np.column_stack([first[rows], covariates[rows], np.ones(len(rows))])
    return np.linalg.lstsq(design, values[rows], rcond=None)[0][0]


def test_the_statistic_is_that_of_an_independent_regression():
    rng = np.random.default_rng(1)
    first, measures = rng.random(80) < 0.4, rng.gamma(2, 5, (80, 3))
    values, weights = rng.random(80), rng.multinomial(80, np.full(80, 1 / 80), 6).astype(float)
    covariates = difficulty(measures)
    found = GroupDifference(values, first, covariates).statistic(weights)
    expected = [regression(values, first, covariates, row) for row in weights]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    plain = score_of(GroupDifference(values, first, covariates[:, :0]))
    assert plain == pytest.approx(values[first].mean() - values[~first].mean())


def test_a_constant_measure_changes_nothing_and_a_group_without_items_is_undefined():
    rng = np.random.default_rng(2)
    first, measures, values = np.arange(40) < 20, rng.gamma(2, 5, (40, 2)), rng.random(40)
    constant = np.column_stack([measures, np.ones(40)])
    one, other = (score_of(GroupDifference(values, first, difficulty(some))) for some in (measures, constant))
    assert one == pytest.approx(other)
    weights = np.stack([first, ~first, np.ones(40)]).astype(float)
    undefined = np.isnan(GroupDifference(values, first, difficulty(measures)).statistic(weights))
    assert undefined.tolist() == [True, True, False]


@pytest.mark.parametrize("planted", [0.0, 0.1])
def test_drift_of_difficulty_is_matched_away_and_a_planted_effect_is_found(planted):
    rng = np.random.default_rng(3)
    month = np.repeat(np.arange(8), 100)
    hits = np.exp(rng.normal(3 - 0.1 * month, 0.5))  # later queries are harder
    easy = 1 / (1 + np.exp(4 - 1.6 * np.log1p(hits)))
    scores = rng.beta(2 * easy, 2 * (1 - easy))
    first = month < 4
    covariates = difficulty(hits[:, None])
    values = scores + planted * first
    raw = bootstrap_interval(GroupDifference(values, first, covariates[:, :0]))
    matched = bootstrap_interval(GroupDifference(values, first, covariates))
    assert raw.low > planted
    assert matched.low <= planted <= matched.high
    assert (matched.low > 0) == (planted > 0)
