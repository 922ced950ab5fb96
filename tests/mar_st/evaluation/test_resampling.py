from __future__ import annotations

import numpy as np

from mar_st.evaluation import resampling
from mar_st.evaluation.resampling import p_value, resampled


def test_draws_do_not_depend_on_how_many_come_at_a_time(monkeypatch):
    whole = np.concatenate(list(resampled(7, 100, 3)))
    assert whole.shape == (100, 7)
    assert set(whole.ravel()) == set(range(7))
    monkeypatch.setattr(resampling, "_VALUES", 50)
    parts = list(resampled(7, 100, 3))
    assert [len(part) for part in parts] == [*[7] * 14, 2]
    assert (np.concatenate(parts) == whole).all()
    assert not (np.concatenate(list(resampled(7, 100, 4))) == whole).all()


def test_the_observed_assignment_counts_as_a_draw():
    assert p_value(2.0, np.array([0.0, 1.0, -1.0])) == 1 / 4
    assert p_value(-1.0, np.array([0.0, 1.0, -1.0])) == 3 / 4
    assert p_value(0.0, np.array([0.0, 1.0, -1.0])) == 1
