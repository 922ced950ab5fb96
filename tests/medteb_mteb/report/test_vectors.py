from __future__ import annotations

import numpy as np
import pytest

from medteb_mteb.report.vectors import Similarities


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    positives, negatives = rng.normal(1, 1, 40).round(1), rng.normal(0, 1, 40).round(1)
    right = (positives[:, None] > negatives[None]).mean() + (positives[:, None] == negatives[None]).mean() / 2
    assert Similarities(positives, negatives).auc() == pytest.approx(right)
    assert Similarities(positives, positives).auc() == pytest.approx(0.5)
