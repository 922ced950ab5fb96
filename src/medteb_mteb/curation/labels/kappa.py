"""Cohen's kappa with quadratic weights of two raters, with its bootstrap interval over queries.

Source: J. Cohen, Psychological Bulletin 70 (1968). For two categories it equals the kappa without weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.labels.agreement import IntervalEstimate
from medteb_mteb.curation.labels.intervals import interval
from medteb_mteb.report.intervals import score_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["ItemRatings", "weighted_kappa"]


@dataclass(frozen=True)
class ItemRatings:
    """Ratings of one item by two raters.

    Attributes:
        query: Query of the item; items of a query are resampled together.
        first: Category of the first rater, from 0.
        second: Category of the second rater.
    """

    query: str
    first: int
    second: int


def weighted_kappa(items: Sequence[ItemRatings], levels: int) -> IntervalEstimate:
    """Return the weighted kappa of two raters and its 95 % interval.

    Args:
        items: The ratings.
        levels: Number of categories, which are ordered.

    Returns:
        The coefficient; NaN if there are no items, or all ratings are in one category.
    """
    names, queries = np.unique([item.query for item in items], return_inverse=True)
    table = np.zeros((len(names), levels, levels))
    first = np.array([item.first for item in items], dtype=np.int64)
    second = np.array([item.second for item in items], dtype=np.int64)
    np.add.at(table, (queries, first, second), 1)
    sample = _Tables(table)
    value = score_of(sample) if len(names) else float("nan")
    return IntervalEstimate(value, *interval(sample))


@dataclass(frozen=True)
class _Tables:
    """Contingency tables of the queries, shape (queries, levels, levels), as a sample for the bootstrap."""

    table: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.table)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return kappa under each weighting, as `medteb_mteb.report.intervals.Sample.statistic`."""
        levels = self.table.shape[1]
        tables = (weights @ self.table.reshape(len(self.table), -1)).reshape(-1, levels, levels)
        distance = np.subtract.outer(np.arange(levels), np.arange(levels)) ** 2.0
        by_chance = np.einsum("ri,rj,ij->r", tables.sum(axis=2), tables.sum(axis=1), distance)
        by_chance /= np.maximum(tables.sum(axis=(1, 2)), 1)
        result = np.full(len(weights), np.nan)
        observed = (tables * distance).sum(axis=(1, 2))
        np.divide(observed, by_chance, out=result, where=by_chance > 0)
        return 1 - result
