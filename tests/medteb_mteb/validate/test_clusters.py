"""Means over queries, and their intervals over clusters of near-duplicates."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from medteb_mteb.validate.clusters import cluster_means, mean_of_queries


def clustered(*sizes):
    """Queries `q0`, `q1`, ... in clusters of these sizes, whose numbers need not follow one another."""
    clusters = [10 * number for number, size in enumerate(sizes) for _ in range(size)]
    return SimpleNamespace(clusters={f"q{i}": cluster for i, cluster in enumerate(clusters)})


def scores_of(*values):
    return {f"q{i}": value for i, value in enumerate(values)}


def test_each_cluster_has_the_mean_of_its_queries():
    means = cluster_means(clustered(2, 1, 3), scores_of(1, 0, 0.25, 0.3, 0.6, 0))
    assert means == pytest.approx([0.5, 0.25, 0.3])


def test_a_large_cluster_counts_by_its_queries_in_the_mean():
    estimate = mean_of_queries(clustered(3, 1), scores_of(1, 1, 1, 0))
    assert estimate.value == pytest.approx(0.75)
    assert estimate.low == 0
    assert estimate.high == 1


def test_copies_of_each_query_change_neither_the_mean_nor_its_interval():
    values = np.random.default_rng(0).random(30)
    once = mean_of_queries(clustered(*[1] * 30), scores_of(*values))
    thrice = mean_of_queries(clustered(*[3] * 30), scores_of(*np.repeat(values, 3)))
    apart = mean_of_queries(clustered(*[1] * 90), scores_of(*np.repeat(values, 3)))
    assert (thrice.value, thrice.low, thrice.high) == pytest.approx((once.value, once.low, once.high))
    assert apart.high - apart.low < 0.8 * (once.high - once.low)


def test_queries_without_scores_do_not_count_and_no_scores_have_no_mean():
    assert mean_of_queries(clustered(1, 1, 1), {"q0": 1.0, "q2": 0.5}).value == pytest.approx(0.75)
    assert cluster_means(clustered(1, 1, 1), {"q2": 0.5}) == pytest.approx([0.5])
    assert len(cluster_means(clustered(1), {})) == 0
    assert np.isnan(mean_of_queries(clustered(1), {}).value)
