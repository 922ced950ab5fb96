from __future__ import annotations

import math

import numpy as np
import pytest

from medteb_mteb.curation.labels.kappa import Rated, weighted_kappa


def rated(queries=40, levels=5):
    draw = np.random.default_rng(4)
    first = draw.integers(0, levels, size=(queries, 6))
    second = np.where(draw.random(first.shape) < 0.6, first, draw.integers(0, levels, size=first.shape))
    return [
        Rated(f"q{q}", int(a), int(b))
        for q in range(queries)
        for a, b in zip(first[q], second[q], strict=True)
    ]


@pytest.mark.parametrize("levels", [2, 5])
def test_kappa_equals_scikit_learns_and_is_in_its_interval(levels):
    metrics = pytest.importorskip("sklearn.metrics")
    items = rated(levels=levels)
    found = weighted_kappa(items, levels)
    expected = metrics.cohen_kappa_score(
        [one.first for one in items], [one.second for one in items], weights="quadratic"
    )
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.low < found.value < found.high
    assert found.high - weighted_kappa(rated(160, levels), levels).low < 1  # finite, and not the whole range


def test_perfect_opposite_and_undefined_agreement():
    assert weighted_kappa([Rated(f"q{i}", i % 5, i % 5) for i in range(20)], 5).value == 1.0
    opposite = [Rated(f"q{i}", i % 2, 1 - i % 2) for i in range(20)]
    assert weighted_kappa(opposite, 2).value == -1.0
    assert math.isnan(weighted_kappa([Rated(f"q{i}", 0, 0) for i in range(20)], 5).value)
    assert math.isnan(weighted_kappa([], 5).value)
