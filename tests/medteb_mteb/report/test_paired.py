from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test

from medteb_mteb.report.intervals import CorrelationSample, MeanSample, bootstrap_interval
from medteb_mteb.report.paired import Compared


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def compared(systems, groups=None, **options):
    """Compare systems on one task, given as values, samples, or lists of samples for several tasks."""
    tasks = {}
    for name, given in systems.items():
        sample = given if hasattr(given, "statistic") or isinstance(given, list) else MeanSample(given)
        tasks[name] = sample if isinstance(sample, list) else [sample]
    groups = groups or [np.arange(len(next(iter(tasks.values()))[0]))]
    return Compared.of(tasks, groups, **options)


def pair(first, second):
    return compared({"first": first, "second": second}).pairs["first", "second"]


def test_equal_systems_do_not_differ_and_better_ones_do(rng):
    values = rng.uniform(0, 1, 80)
    same = pair(values, values)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert (same.wins, same.ties, same.losses) == (0, 80, 0)
    better = pair(values + rng.normal(0.1, 0.05, 80), values)
    assert better.low > 0
    assert better.p_value < 0.01
    assert pair(values + rng.normal(0, 0.05, 80), values).p_value > 0.05


def test_the_test_agrees_with_scipys_exact_test_of_all_swaps(rng):
    first, second = rng.uniform(0, 1, (2, 12))
    exact = permutation_test(
        (first, second), lambda a, b, axis: (a - b).mean(axis=axis), permutation_type="samples",
        n_resamples=np.inf, vectorized=True,
    )  # fmt: skip
    found = pair(first, second)
    assert found.difference == pytest.approx(exact.statistic)
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.03)


def test_a_p_value_beyond_the_number_of_swaps_is_an_upper_bound_of_the_exact_one():
    gain = pair(np.full(40, 0.6), np.full(40, 0.5))
    assert 2 * 0.5**40 <= gain.p_value < 1e-8  # exact: all 40 signs alike


def test_pairing_makes_a_small_steady_gain_visible(rng):
    values = rng.uniform(0, 1, 60)
    gain = pair(values + 0.02, values)
    assert gain.low == pytest.approx(0.02)
    assert gain.wins == 60
    alone = bootstrap_interval(MeanSample(values))
    assert alone.high - alone.low > 0.1  # far wider than the gain


def test_the_detectable_difference_is_found_four_times_in_five(rng):
    first, second = rng.uniform(0, 1, (2, 400))
    detectable = pair(first, second).detectable
    assert detectable == pytest.approx(2.8016 * (first - second).std(ddof=1) / 20, rel=0.06)


def test_correlations_are_compared_on_the_same_resamples(rng):
    gold = rng.uniform(0, 5, 300)
    close = CorrelationSample(gold, gold + rng.normal(0, 0.5, 300), "pearson")
    far = CorrelationSample(gold, gold + rng.normal(0, 3, 300), "pearson")
    found = pair(close, far)
    assert found.low > 0
    assert found.p_value < 1e-6
    assert found.wins is None
    assert pair(far, close).difference == -found.difference


def test_a_question_of_two_tasks_counts_once(rng):
    first, second = rng.uniform(0, 1, (2, 50))
    numbers = np.arange(50)
    twice = compared(
        {"a": [MeanSample(first), MeanSample(first)], "b": [MeanSample(second), MeanSample(second)]},
        [numbers, numbers],
    )
    assert twice.questions == 50
    once = pair(first, second)
    assert twice.pairs["a", "b"] == pytest.approx(once)
    independent = compared(
        {"a": [MeanSample(first), MeanSample(first)], "b": [MeanSample(second), MeanSample(second)]},
        [numbers, numbers + 50],
    ).pairs["a", "b"]
    assert independent.high - independent.low < 0.85 * (once.high - once.low)


def test_systems_that_cannot_be_told_from_the_best_share_its_group(rng):
    base = rng.uniform(0.3, 0.7, 200)
    systems = {
        "best": base + 0.2, "nearly": base + 0.2 + rng.normal(-0.001, 0.2, 200),
        "middle": base + rng.normal(0, 0.05, 200), "worst": base - 0.2,
    }  # fmt: skip
    result = compared(systems)
    assert result.groups == {"best": 1, "nearly": 1, "middle": 2, "worst": 3}
    assert all(result.adjusted[names] >= one.p_value for names, one in result.pairs.items())
    assert compared(systems, baseline="middle").groups == result.groups


def test_with_a_baseline_all_others_are_compared_with_it_alone(rng):
    systems = {name: rng.uniform(0, 1, 30) for name in "abc"}
    assert set(compared(systems, baseline="b").pairs) == {("a", "b"), ("c", "b")}


def test_systems_of_different_items_are_refused():
    with pytest.raises(ValueError, match="second has 2 of 3"):
        compared({"first": np.zeros(3), "second": np.zeros(2)})
