from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from medteb_mteb.curation.diversify import Disagreement, SelectionRule, measure_disagreement


@pytest.mark.parametrize(
    ("sampled", "kept", "dropped", "share"),
    [(10, 0, 0, 0.0), (40, 3, 2, 0.125), (50, 0, 7, 0.14), (10, 6, 4, 1.0), (1, 0, 1, 1.0)],
)
def test_share_and_wilson_interval_count_both_kinds_of_reversed_decisions(sampled, kept, dropped, share):
    measured = Disagreement(sampled, kept, dropped)
    wilson = binomtest(kept + dropped, sampled).proportion_ci(method="wilson")
    assert measured.share == share
    assert measured.interval == pytest.approx((wilson.low, wilson.high), abs=1e-6)


def test_without_decisions_after_the_seed_nothing_is_known():
    vectors, kept = np.eye(4, dtype=np.float32), np.ones(4, dtype=bool)
    measured = measure_disagreement(vectors, kept, SelectionRule(0.8, seed_size=9))
    assert measured.to_json() == {"sampled": 0, "kept": 0, "dropped": 0, "share": 0, "interval": [0, 1]}


def test_a_similarity_equal_to_the_limit_is_not_above_it():
    """The similarity of the two is 3 / 5 rounded to float32, as the limit is."""
    vectors, kept = np.array([[1, 0], [3, 4]], dtype=np.float32), np.ones(2, dtype=bool)
    below = float(np.nextafter(np.float32(0.6), np.float32(0)))
    for threshold, wrong in ((0.6, 0), (below, 1)):
        rule = SelectionRule(threshold, tolerated=0, seed_size=1)
        assert measure_disagreement(vectors, kept, rule) == Disagreement(1, kept=wrong, dropped=0)


def test_only_so_many_decisions_are_drawn_and_none_twice():
    """Of vectors that are all alike every second was kept, wrongly."""
    vectors, kept = np.ones((101, 4), dtype=np.float32), np.arange(101) % 2 == 0
    rule = SelectionRule(0.8, tolerated=0, seed_size=1)
    assert measure_disagreement(vectors, kept, rule, sample=100) == Disagreement(100, kept=50, dropped=0)
    samples = [measure_disagreement(vectors, kept, rule, sample=20, seed=seed) for seed in range(8)]
    assert {one.sampled for one in samples} == {20}
    assert len({one.kept for one in samples}) > 1


def test_neighbours_are_counted_in_more_than_two_blocks_of_4096_vectors():
    """Copies of four vectors at right angles, among zeros, which are similar to nothing.

    Rows 7600 and 8300 were kept although two kept copies come before them; 7800, with one before it, was
    dropped. The decisions about the other 897 rows after the seed are right.
    """
    vectors, kept = np.zeros((8400, 4), dtype=np.float32), np.ones(8400, dtype=bool)
    copies = ([10, 5000, 7600], [20, 7700], [30, 7800, 7900], [8200, 8250, 8300])
    for axis, rows in enumerate(copies):
        vectors[rows, axis] = 0.1  # lengths do not matter
    kept[7800] = False
    rule = SelectionRule(0.8, tolerated=1, seed_size=7500)
    assert measure_disagreement(vectors, kept, rule) == Disagreement(900, kept=2, dropped=1)
