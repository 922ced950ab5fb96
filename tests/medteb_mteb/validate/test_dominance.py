"""Rank correlation of grades with a value, compared with its definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from medteb_mteb.validate.dominance import BINS, Graded, binned, difference, rank_correlation, ratio


def somers(grades, values, weights):
    """Somers' D of the values given the grades, pair by pair."""
    sign = pairs = 0
    for i in range(len(grades)):
        for j in range(len(grades)):
            if grades[i] > grades[j]:
                pairs += weights[i] * weights[j]
                sign += weights[i] * weights[j] * np.sign(values[i] - values[j])
    return sign / pairs


def drawn(seed, weighted=False):
    """Grades of 60 pairs of 15 queries, their values, and their weights."""
    draw = np.random.default_rng(seed)
    grades, values = draw.integers(0, 5, 60), draw.integers(0, 12, 60).astype(float)
    weights = draw.uniform(0.5, 3, 60) if weighted else np.ones(60)
    return Graded(np.arange(60) % 15, grades, binned(values), weights), values


@pytest.mark.parametrize("weighted", [False, True])
def test_the_rank_correlation_is_that_of_every_two_passages(weighted):
    graded, values = drawn(1, weighted)
    estimate = rank_correlation(graded, 15)
    assert estimate.value == pytest.approx(somers(graded.grades, values, graded.weights), abs=1e-12)
    assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize(
    ("grades", "values", "expected"),
    [([0, 1, 4], [1, 2, 3], 1), ([4, 1, 0], [1, 2, 3], -1), ([0, 4], [7, 7], 0), ([2, 2], [1, 3], np.nan)],
)
def test_passages_in_order_correlate_fully_and_equal_grades_not_at_all(grades, values, expected):
    graded = Graded(np.zeros(len(grades), dtype=int), np.array(grades), binned(np.array(values, dtype=float)))
    assert rank_correlation(graded, 1).value == pytest.approx(expected, nan_ok=True)


def test_the_difference_is_to_the_mean_of_the_other_judges():
    one, first, second = (drawn(seed)[0] for seed in (1, 2, 3))
    values = [rank_correlation(graded, 15).value for graded in (one, first, second)]
    estimate = difference(one, (first, second), 15)
    assert estimate.value == pytest.approx(values[0] - (values[1] + values[2]) / 2, abs=1e-12)
    alike = difference(one, (one,), 15)
    assert (alike.value, alike.low, alike.high) == (0, 0, 0)


def test_the_mean_of_pairs_is_over_all_pairs_and_its_interval_over_queries_that_have_some():
    queries = np.repeat([0, 3, 4], [4, 1, 5])
    values = np.array([1, 1, 1, 1, 0, 1, 0, 1, 0, 1], dtype=float)
    estimate = ratio(values, queries, 9)
    assert estimate.value == pytest.approx(0.7)
    again = ratio(values, np.unique(queries, return_inverse=True)[1], 3)
    assert (again.low, again.high) == (estimate.low, estimate.high)
    assert 0 <= estimate.low < estimate.value < estimate.high <= 1


def test_nothing_has_neither_a_mean_nor_a_correlation():
    none = np.array([], dtype=np.int64)
    assert np.isnan(ratio(none.astype(float), none, 3).value)
    assert np.isnan(rank_correlation(Graded(none, none, none), 0).value)


@pytest.mark.parametrize("different", [1, 2, BINS, BINS + 1, 500])
def test_bins_keep_the_order_and_equal_values_together(different):
    values = np.random.default_rng(2).permutation(np.arange(3000) % different).astype(float)
    bins = binned(values)
    assert (np.diff(bins[np.argsort(values)]) >= 0).all()
    assert (bins.min(), len(set(bins.tolist()))) == (0, min(different, BINS))
    assert bins.max() < BINS
    assert all(len(set(bins[values == one])) == 1 for one in set(values))


def test_one_frequent_value_does_not_take_the_bins_of_the_others():
    values = np.concatenate([np.zeros(900), np.arange(1, 101, dtype=float)])
    assert len(set(binned(values)[900:].tolist())) > 1
