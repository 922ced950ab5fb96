from __future__ import annotations

import math

import numpy as np
import pytest

from medteb_mteb.curation.labels.kappa import ItemRatings, weighted_kappa


def rated(queries=40, levels=5):
    draw = np.random.default_rng(4)
    first = draw.integers(0, levels, size=(queries, 6))
    second = np.where(draw.random(first.shape) < 0.6, first, draw.integers(0, levels, size=first.shape))
    return [
        ItemRatings(f"q{q}", int(a), int(b))
        for q in range(queries)
        for a, b in zip(first[q], second[q], strict=True)
    ]


@pytest.mark.parametrize("levels", [2, 5])
def test_kappa_equals_scikit_learns_and_is_in_its_interval(levels):
    metrics = pytest.importorskip("sklearn.metrics")
    items = rated(levels=levels)
    kappa = weighted_kappa(items, levels)
    expected = metrics.cohen_kappa_score(
        [one.first for one in items], [one.second for one in items], weights="quadratic"
    )
    assert kappa.value == pytest.approx(expected, abs=1e-12)
    assert kappa.low < kappa.value < kappa.high
    assert kappa.high - weighted_kappa(rated(160, levels), levels).low < 1  # finite, and not the whole range


def test_kappa_is_1_if_perfect_minus_1_if_opposite_and_nan_if_undefined():
    assert weighted_kappa([ItemRatings(f"q{i}", i % 5, i % 5) for i in range(20)], 5).value == 1.0
    opposite = [ItemRatings(f"q{i}", i % 2, 1 - i % 2) for i in range(20)]
    assert weighted_kappa(opposite, 2).value == -1.0
    assert math.isnan(weighted_kappa([ItemRatings(f"q{i}", 0, 0) for i in range(20)], 5).value)
    assert math.isnan(weighted_kappa([], 5).value)


def test_one_query_has_the_kappa_of_its_table_but_no_interval():
    """Squared distances add up to 2; those expected of margins 3, 2, 3 and 2, 2, 4 to 96 / 8: 1 - 2 / 12."""
    table = [[2, 1, 0], [0, 1, 1], [0, 0, 3]]
    items = [
        ItemRatings("q", first, second)
        for first, row in enumerate(table)
        for second, count in enumerate(row)
        for _ in range(count)
    ]
    kappa = weighted_kappa(items, 3)
    assert kappa.value == pytest.approx(5 / 6)
    assert math.isnan(kappa.low)
    assert math.isnan(kappa.high)


def test_items_of_a_query_are_resampled_together():
    """Each of two queries makes up a quarter of the resamples alone, so the ends are the queries' kappas.

    By hand these are 1 - 1 / 2 and 1 - 2 / 2, and that of both queries is 1 - 3 / 4.
    """
    ratings = {"better": ["00", "11", "11", "10"], "worse": ["00", "01", "10", "11"]}
    items = [ItemRatings(query, int(a), int(b)) for query, pairs in ratings.items() for a, b in pairs]
    kappa = weighted_kappa(items, 2)
    assert (kappa.low, kappa.value, kappa.high) == pytest.approx((0, 0.25, 0.5), abs=1e-12)


def test_two_items_of_different_categories_suffice_for_a_kappa():
    assert weighted_kappa([ItemRatings("a", 0, 0), ItemRatings("b", 1, 1)], 2).value == 1.0
