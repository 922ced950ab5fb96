"""Rank correlation of grades with a value that they should not depend on.

It is Somers' D of the value given the grade (R. Somers, American Sociological Review 27, 1962): how much more
often, of two passages with different grades, the better one has the higher value rather than the lower one.
Equal grades are not compared, so D does not shrink if nearly all grades are the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.labels.agreement import IntervalEstimate
from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.labels.intervals import interval
from medteb_mteb.report.intervals import score_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BINS", "Graded", "binned", "difference", "rank_correlation", "ratio"]

#: Maximum number of quantile bins for the comparison; values of one bin count as equal.
BINS = 20


@dataclass(frozen=True)
class Graded:
    """Grades of one judge, and a value for each graded pair.

    Attributes:
        queries: Index of the query of each pair, shape (pairs,), int64.
        grades: 0 for D to 4 for S, shape (pairs,), int64.
        bins: Index of the value's bin, see `binned`, shape (pairs,), int64.
        weights: Weight of each pair, shape (pairs,), float64; default 1.
    """

    queries: NDArray[np.int64]
    grades: NDArray[np.int64]
    bins: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def tables(self, queries: int) -> NDArray[np.float64]:
        """Return the pairs by query, grade and bin, shape (queries, 5, bins)."""
        counts = np.zeros((queries, len(GRADES), BINS))
        times = 1.0 if self.weights is None else self.weights
        np.add.at(counts, (self.queries, self.grades, self.bins), times)
        return counts


def binned(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each value, from 0 to `BINS` - 1, `(values,)`; equal values share one."""
    different = np.unique(values)
    if len(different) > BINS:
        different = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    return np.minimum(np.searchsorted(different, values), BINS - 1)


def rank_correlation(graded: Graded, queries: int) -> IntervalEstimate:
    """Return Somers' D with its 95 % bootstrap interval over queries; NaN if all grades are equal.

    Args:
        graded: The grades.
        queries: Number of queries.
    """
    return _estimate(_Dominance((graded.tables(queries),)))


def difference(graded: Graded, others: tuple[Graded, ...], queries: int) -> IntervalEstimate:
    """Return Somers' D less the mean of others, with its 95 % paired bootstrap interval over queries.

    Args:
        graded: The grades of one judge.
        others: Grades of other judges for the same pairs.
        queries: Number of queries.
    """
    return _estimate(_Dominance(tuple(one.tables(queries) for one in (graded, *others))))


def ratio(values: NDArray[np.float64], queries: NDArray[np.int64], number: int) -> IntervalEstimate:
    """Return the mean with its 95 % bootstrap interval over queries.

    Args:
        values: A value per pair, shape (pairs,).
        queries: Index of the query of each pair, shape (pairs,).
        number: Number of queries.
    """
    sums = np.bincount(queries, weights=values, minlength=number).astype(float)
    counts = np.bincount(queries, minlength=number).astype(float)
    nonempty = counts > 0
    return _estimate(_Ratio(sums[nonempty], counts[nonempty]))


def _estimate(sample: _Dominance | _Ratio) -> IntervalEstimate:
    return IntervalEstimate(score_of(sample) if len(sample) else float("nan"), *interval(sample))


@dataclass(frozen=True)
class _Ratio:
    """A mean over items that come in clusters: sums and counts by cluster."""

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sums)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean under each weighting, as `medteb_mteb.report.intervals.Sample.statistic`."""
        return np.asarray((weights @ self.sums) / (weights @ self.counts))


@dataclass(frozen=True)
class _Dominance:
    """Somers' D of the first tables, less the mean of that of the others if there are any."""

    tables: tuple[NDArray[np.float64], ...]

    def __len__(self) -> int:
        return len(self.tables[0])

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the figure under each weighting, as `medteb_mteb.report.intervals.Sample.statistic`."""
        values = [_somers(weights, table) for table in self.tables]
        if len(values) == 1:
            return values[0]
        return np.asarray(values[0] - np.mean(values[1:], axis=0))


def _somers(weights: NDArray[np.float64], tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Somers' D under each weighting of the queries, shape (resamples,)."""
    counts = (weights @ tables.reshape(len(tables), -1)).reshape(-1, *tables.shape[1:])
    worse = counts.cumsum(axis=1)[:, :-1]  # all with a lower grade, by grade and bin
    better = counts[:, 1:]
    upto = worse.cumsum(axis=2)
    total = upto[:, :, -1:]
    below, above = upto - worse, total - upto
    sign = (better * (below - above)).sum(axis=(1, 2))
    pairs = (better.sum(axis=2) * total[:, :, 0]).sum(axis=1)
    result = np.full(len(weights), np.nan)
    np.divide(sign, pairs, out=result, where=pairs > 0)
    return result
