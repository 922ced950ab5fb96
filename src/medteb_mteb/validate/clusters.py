"""Mean scores whose intervals count near-duplicates of a query as one question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.validate.dominance import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.agreement import IntervalEstimate
    from medteb_mteb.validate.material import Material

__all__ = ["cluster_means", "mean_of_queries"]


def mean_of_queries(material: Material, scores: Mapping[str, float]) -> IntervalEstimate:
    """Return the mean over queries with its 95 % bootstrap interval over clusters of near-duplicates.

    Args:
        material: The edition, with the clusters.
        scores: Score by query.
    """
    numbers, count = _numbers(material, scores)
    return ratio(np.array(list(scores.values()), dtype=float), numbers, count)


def cluster_means(material: Material, scores: Mapping[str, float]) -> NDArray[np.float64]:
    """Return the mean score of each cluster of near-duplicates, shape (clusters,)."""
    numbers, count = _numbers(material, scores)
    sums = np.bincount(numbers, weights=list(scores.values()), minlength=count)
    return np.asarray(sums / np.bincount(numbers, minlength=count), dtype=np.float64)


def _numbers(material: Material, scores: Mapping[str, float]) -> tuple[NDArray[np.int64], int]:
    """Return the number of the cluster of each query, and how many clusters there are."""
    clusters, numbers = np.unique([material.clusters[query] for query in scores], return_inverse=True)
    return numbers, len(clusters)
