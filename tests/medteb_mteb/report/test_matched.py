"""Differences of groups that are matched for difficulty: an independent regression, and planted effects."""

from __future__ import annotations

import numpy as np
import pytest

from medteb_mteb.report.intervals import GroupDifference, bootstrap_interval, difficulty, score_of


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
