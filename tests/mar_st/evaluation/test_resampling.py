from __future__ import annotations

import numpy as np

from mar_st.evaluation import resampling
from mar_st.evaluation.resampling import p_value, resampled, swapped_means


def test_draws_do_not_depend_on_how_many_come_at_a_time(monkeypatch):
    whole = np.concatenate(list(resampled(7, 100, 3)))
    assert whole.shape == (100, 7)
    assert set(whole.ravel()) == set(range(7))
    monkeypatch.setattr(resampling, "_MAX_VALUES", 50)
    parts = list(resampled(7, 100, 3))
    assert [len(part) for part in parts] == [*[7] * 14, 2]
    assert (np.concatenate(parts) == whole).all()
    assert not (np.concatenate(list(resampled(7, 100, 4))) == whole).all()


def test_the_observed_assignment_counts_as_a_draw():
    assert p_value(2.0, np.array([0.0, 1.0, -1.0])) == 1 / 4
    assert p_value(-1.0, np.array([0.0, 1.0, -1.0])) == 3 / 4
    assert p_value(0.0, np.array([0.0, 1.0, -1.0])) == 1


def test_swapped_means_are_those_of_swapped_scores():
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 9))
    swaps = [rng.random((4, 9)) < 0.5, rng.random((3, 9)) < 0.5]
    expected = [
        np.where(swap, second, first).mean() - np.where(swap, first, second).mean()
        for swap in np.concatenate(swaps)
    ]
    np.testing.assert_allclose(swapped_means(first - second, swaps), expected, atol=1e-15)
