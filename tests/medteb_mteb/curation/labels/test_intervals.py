from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import beta

from medteb_mteb.report.intervals import (
    CorrelationSample,
    MeanSample,
    exact_interval,
    interval,
    rounded,
    smallest_difference,
)


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 8), (49, 50)])
def test_the_exact_interval_has_quantiles_of_the_beta_distribution_as_ends(successes, trials, level):
    """C. Clopper and E. Pearson, Biometrika 26 (1934); 0 and 1 where the distribution is not defined."""
    tail = (1 - level) / 2
    low = beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = beta.ppf(1 - tail, successes + 1, trials - successes) if successes < trials else 1.0
    assert exact_interval(successes, trials, level) == pytest.approx((low, high), abs=1e-9)


def test_the_exact_interval_of_one_success_begins_at_a_fortieth():
    assert exact_interval(1, 1) == pytest.approx((0.025, 1.0))


def test_no_trials_have_no_exact_interval():
    assert all(map(math.isnan, exact_interval(0, 0)))


def test_the_bootstrap_interval_holds_95_percent():
    """The mean of 0 to 999 has a standard error of sqrt((1000 ** 2 - 1) / 12 / 1000) = 9.13.

    So the ends are 17.9 away from it; those of 90 % would be 15.0 away.
    """
    bounds = interval(MeanSample(np.arange(1000.0)))
    assert bounds == pytest.approx((499.5 - 17.9, 499.5 + 17.9), abs=1.5)


@pytest.mark.parametrize(
    "sample",
    [MeanSample(np.array([0.5])), CorrelationSample(np.ones(5), np.arange(5.0), "pearson")],
    ids=["one item", "undefined"],
)
def test_too_few_items_or_an_undefined_statistic_have_no_interval(sample):
    assert all(map(math.isnan, interval(sample)))


@pytest.mark.parametrize(("queries", "deviation"), [(12, 0.3), (400, 0.5)])
def test_the_smallest_difference_is_found_four_times_in_five(queries, deviation):
    """The test finds a mean of more than 1.96 standard errors on either side."""
    error = deviation / math.sqrt(queries)
    means = NormalDist(smallest_difference(queries, deviation), error)
    power = 1 - means.cdf(1.959964 * error) + means.cdf(-1.959964 * error)
    assert power == pytest.approx(0.8, abs=1e-4)


def test_the_smallest_difference_assumes_a_deviation_of_three_tenths():
    """By tables of the normal distribution 1.959964 + 0.841621 standard errors, of 0.03 for 100 queries."""
    assert smallest_difference(100) == pytest.approx(0.0840476, abs=1e-6)


def test_numbers_are_rounded_to_four_decimals_and_nan_becomes_none():
    assert rounded(0.123456) == 0.1235
    assert rounded(math.nan) is None
