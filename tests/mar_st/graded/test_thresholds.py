"""Tests of thresholds between grades, and of the kappa that they are fitted to."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from mar_st.errors import MarError
from mar_st.graded.grader import Thresholds, fit_thresholds, weighted_kappa


def noisy(number=120):
    draw = np.random.default_rng(7)
    labels = draw.integers(0, 4, number)
    return labels + draw.normal(0, 0.8, number), labels.tolist()


def test_weighted_kappa_is_that_of_scikit_learn():
    draw = np.random.default_rng(3)
    for _ in range(8):
        one, other = draw.integers(0, 5, 60), draw.integers(0, 5, 60)
        expected = cohen_kappa_score(one, other, labels=range(5), weights="quadratic")
        assert weighted_kappa(one, other, 5) == pytest.approx(expected, abs=1e-12)
    assert weighted_kappa([2, 2], [2, 2], 5) == 1.0


def test_a_score_equal_to_a_bound_gets_the_higher_label():
    thresholds = Thresholds((0, 2, 4), (0.25, 0.75))
    scores = [-np.inf, 0.0, 0.25, 0.5, 0.75, np.inf]
    assert thresholds.label(scores).tolist() == [0, 0, 2, 2, 4, 4]
    assert thresholds.label(np.float32([0.75, 0.2])).tolist() == [4, 0]
    assert thresholds.label([]).tolist() == []


def test_a_label_between_equal_bounds_is_never_given():
    assert set(Thresholds((0, 1, 2), (0.5, 0.5)).label(np.linspace(0, 1, 11)).tolist()) == {0, 2}


@pytest.mark.parametrize("number", [np.nan, -np.nan])
def test_a_score_that_is_not_a_number_has_no_label(number):
    with pytest.raises(MarError, match="score of pair 1 is NaN"):
        Thresholds((0, 1), (0.5,)).label([0.1, number])
    with pytest.raises(MarError, match="score of pair 1 is NaN"):
        fit_thresholds([0.1, number, 0.9], [0, 0, 1])


def test_thresholds_separate_separable_scores():
    draw = random.Random(5)
    labels = [draw.choice([0, 1, 2, 3, 4]) for _ in range(400)]
    scores = [label + draw.uniform(-0.4, 0.4) for label in labels]
    thresholds = fit_thresholds(scores, labels)
    assert thresholds.label(scores).tolist() == labels
    # Mixed ones are no worse than the quantiles they begin with.
    mixed = np.array([label + draw.gauss(0, 1.5) for label in labels])
    counts = np.cumsum(np.bincount(labels))[:-1] / len(labels)
    start = np.searchsorted(np.quantile(mixed, counts), mixed, side="right")
    assert weighted_kappa(fit_thresholds(mixed, labels).label(mixed), labels, 5) >= weighted_kappa(
        start, labels, 5
    )
    two = fit_thresholds([0.1, 0.2, 0.8, 0.9], [0, 0, 4, 4])
    assert two.label([0.0, 1.0]).tolist() == [0, 4]


def test_fitted_labels_do_not_depend_on_the_order_or_the_scale_of_scores():
    scores, labels = noisy()
    expected = fit_thresholds(scores, labels).label(scores)
    assert len(set(expected.tolist())) == 4
    np.testing.assert_array_equal(fit_thresholds(scores * 4, labels).label(scores * 4), expected)
    order = np.random.default_rng(1).permutation(len(scores))
    again = fit_thresholds(scores[order], np.array(labels)[order].tolist())
    np.testing.assert_array_equal(again.label(scores), expected)


def test_only_labels_that_occur_are_given():
    scores, labels = noisy()
    spread = [{0: 1, 1: 4, 2: 50, 3: 99}[label] for label in labels]
    thresholds = fit_thresholds(scores, spread)
    assert thresholds.labels == (1, 4, 50, 99)
    assert thresholds.bounds == fit_thresholds(scores, labels).bounds


def test_labels_of_one_kind_have_no_thresholds():
    with pytest.raises(MarError, match=r"two labels at least; all are \[3\]"):
        fit_thresholds([0.1, 0.2], [3, 3])


@pytest.mark.parametrize(
    ("labels", "bounds"),
    [((0,), ()), ((0, 1), (0.1, 0.2)), ((1, 0), (0.5,)), ((0, 1, 2), (0.5, 0.1)), ((0, 1), (float("nan"),))],
)
def test_impossible_thresholds_are_refused(labels, bounds):
    with pytest.raises(MarError, match="Thresholds are ascending"):
        Thresholds(labels, bounds)
