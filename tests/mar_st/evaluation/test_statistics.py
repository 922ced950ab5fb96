from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mar_st.evaluation.statistics import (
    Scores,
    bootstrap,
    holm,
    mixed,
    p_value,
    resampled,
    seed_variances,
)


def _scores(items=8, seeds=2, kind="mean"):
    rng = np.random.default_rng(3)
    gold = None if kind == "mean" else rng.integers(0, 3, items).astype(float)
    return Scores(rng.random((seeds, items)), gold, kind)


def _naive_statistic(values, gold, kind):
    if kind == "mean":
        return float(np.mean(values))
    test = {"pearson": scipy_stats.pearsonr, "spearman": scipy_stats.spearmanr}[kind]
    return float(np.mean([test(row, gold).statistic for row in values]))


@pytest.mark.parametrize("kind", ["mean", "pearson", "spearman"])
def test_scores_are_those_of_scipy(kind):
    first = _scores(12, 3, kind)
    naive = [_naive_statistic(row[None], first.gold, kind) for row in first.values]
    np.testing.assert_allclose(first.per_seed(), naive, atol=1e-12)


def test_spearman_shares_ranks_among_equal_predictions():
    values = np.array([[0.5, 0.5, 0.1, 0.9, 0.5, 0.1]])
    gold = np.array([1.0, 0.0, 0.0, 1.0, 2.0, 2.0])
    expected = scipy_stats.spearmanr(values[0], gold).statistic
    np.testing.assert_allclose(Scores(values, gold, "spearman").per_seed(), [expected])


def test_the_observed_assignment_counts_as_a_draw():
    assert p_value(2.0, np.array([0.0, 1.0, -1.0])) == 1 / 4
    assert p_value(-1.0, np.array([0.0, 1.0, -1.0])) == 3 / 4  # two-sided
    assert p_value(0.0, np.array([0.0, 1.0, -1.0])) == 1


def test_draws_do_not_depend_on_how_many_come_at_a_time(monkeypatch):
    whole = np.concatenate(list(resampled(7, 100, 3)))
    assert set(whole.ravel()) == set(range(7))
    monkeypatch.setattr("mar_st.evaluation.statistics._MAX_VALUES", 50)
    parts = list(resampled(7, 100, 3))
    assert [len(part) for part in parts] == [*[7] * 14, 2]
    assert (np.concatenate(parts) == whole).all()


def test_draws_follow_their_seed():
    first = _scores(30)
    drawn = [bootstrap(first, resamples=1200, seed=seed) for seed in ((1, 2), (1, 2), (1, 3))]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_the_bootstrap_of_a_mean_is_that_of_the_seed_averaged_items():
    first = _scores(25, 3)
    averaged = Scores(first.values.mean(axis=0, keepdims=True))
    args = {"resamples": 700, "seed": (5,)}
    np.testing.assert_allclose(bootstrap(first, **args), bootstrap(averaged, **args))
    rng = np.random.default_rng([5])
    index = rng.integers(0, 25, (500, 25))  # the first chunk
    np.testing.assert_allclose(bootstrap(first, **args)[:500], averaged.values[0][index].mean(axis=1))


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_the_bootstrap_of_a_correlation_resamples_pairs(kind):
    first = _scores(25, 2, kind)
    drawn = bootstrap(first, resamples=20, seed=(5,))
    index = np.random.default_rng([5]).integers(0, 25, (20, 25))
    naive = [_naive_statistic(first.values[:, row], first.gold[row], kind) for row in index]
    np.testing.assert_allclose(drawn, naive, atol=1e-9)


def test_resampled_ranks_are_shared_among_equal_values():
    rng = np.random.default_rng(1)
    values, gold = rng.integers(0, 4, (1, 12)) / 4, rng.integers(0, 2, 12).astype(float)
    drawn = bootstrap(Scores(values, gold, "spearman"), resamples=50, seed=(5,))
    index = np.random.default_rng([5]).integers(0, 12, (50, 12))
    naive = [_naive_statistic(values[:, row], gold[row], "spearman") for row in index]
    np.testing.assert_allclose(drawn, naive, atol=1e-12)
    # The correlation with a constant is 0.
    for scores in (Scores(np.ones((1, 12)), gold, "spearman"), Scores(values, np.ones(12), "spearman")):
        assert not bootstrap(scores, resamples=50, seed=(5,)).any()


def test_holm_adjusts_p_values_and_keeps_the_order_of_the_comparisons():
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5})
    assert adjusted == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({}) == {}


# -- seeds and items both random --


def test_with_random_seeds_alone_it_is_welchs_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.6, 0.02, 4), rng.normal(0.55, 0.01, 3)
    seeds = seed_variances({"a": first, "b": second}, {"a", "b"})
    result = mixed(seeds["a"], seeds["b"], np.zeros(100))
    expected = scipy_stats.ttest_ind(first, second, equal_var=False)
    assert result.p == pytest.approx(expected.pvalue)
    assert (result.low, result.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert result.difference == pytest.approx(first.mean() - second.mean())


def test_with_random_items_alone_the_interval_is_normal():
    drawn = np.random.default_rng(0).normal(0.1, 0.04, 10_000)
    seeds = seed_variances({"a": np.array([0.6]), "b": np.array([0.5])}, set())
    result = mixed(seeds["a"], seeds["b"], drawn)
    assert result.high - result.difference == pytest.approx(1.96 * drawn.std(ddof=1), rel=1e-3)


def test_a_row_with_one_seed_gets_the_pooled_variance():
    per_seed = {
        "a": np.array([0.1, 0.3]),
        "b": np.array([0.2, 0.2, 0.5]),
        "one": np.array([0.4]),
        "fixed": np.array([0.4]),
    }
    variances = seed_variances(per_seed, {"a", "b", "one"})
    pooled = (0.02 + 2 * per_seed["b"].var(ddof=1)) / 3
    assert (variances["one"].variance, variances["one"].freedom) == pytest.approx((pooled, 3))
    assert (variances["fixed"].variance, variances["fixed"].freedom) == (0.0, 0)


@pytest.mark.thorough
def test_the_mixed_interval_covers_the_truth_when_seeds_vary():
    """Simulated rows of equal worth; an interval over queries alone misses the spread of the seeds."""
    rng, covered, narrow = np.random.default_rng(1), 0, 0
    for trial in range(200):
        per_seed = {name: rng.normal(0, 0.05, (3, 1)) for name in "ab"}
        scores = {name: Scores(effect + rng.normal(0, 0.3, (3, 200))) for name, effect in per_seed.items()}
        drawn = {name: bootstrap(of, resamples=300, seed=(trial,)) for name, of in scores.items()}
        seeds = seed_variances({name: of.per_seed() for name, of in scores.items()}, set("ab"))
        gaps = drawn["a"] - drawn["b"]
        result = mixed(seeds["a"], seeds["b"], gaps)
        covered += result.low <= 0 <= result.high
        low, high = np.percentile(gaps, (2.5, 97.5))
        narrow += low <= 0 <= high
    assert covered / 200 > 0.92
    assert narrow / 200 < 0.8
