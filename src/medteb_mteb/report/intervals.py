"""Confidence intervals: bootstrap ones for the scores of one test set, exact ones of shares, and power.

A score is written as a function of weights on the test items (queries, pairs, texts). Resampling items with
replacement is then the same as drawing whole-number weights, so one vectorised pass evaluates many
resamples at once, also for scores that are not means, such as correlations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from mar_st.evaluation.statistics import resampled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE_LEVEL = 0.95
SEED = 20_260_101


class Sample(Protocol):
    """Measurements on the items of a test set, with the statistic that turns them into a score."""

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the score under each weighting.

        Args:
            weights: Shape (resamples, items), float64: how often each item counts.

        Returns:
            Shape (resamples,), float64; NaN where the score is undefined.
        """
        ...


@dataclass(frozen=True)
class MeanSample:
    """A mean over items, such as nDCG over queries or accuracy over texts.

    Attributes:
        values: One score per item, shape (items,), float64.
    """

    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted means, as :meth:`Sample.statistic`."""
        return np.asarray((weights @ self.values) / weights.sum(axis=1))


@dataclass(frozen=True)
class CorrelationSample:
    """Pearson or Spearman correlation over pairs.

    Attributes:
        gold: Gold score per pair, shape (pairs,), float64.
        predicted: Similarity per pair, shape (pairs,), float64.
        method: Which correlation; Spearman is Pearson over average ranks within the resample.
    """

    gold: NDArray[np.float64]
    predicted: NDArray[np.float64]
    method: Literal["pearson", "spearman"]

    def __len__(self) -> int:
        return len(self.gold)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted correlations, as :meth:`Sample.statistic`."""
        x, y = self.gold[None], self.predicted[None]
        if self.method == "spearman":
            x, y = (_weighted_ranks(values, weights) for values in (self.gold, self.predicted))
        return _weighted_pearson(x, y, weights)


@dataclass(frozen=True)
class AveragePrecisionSample:
    """Average precision over pairs; of several similarity functions, the best one counts.

    Attributes:
        labels: 1 for a positive pair, 0 otherwise, shape (pairs,), float64.
        scores: Similarities, higher is more similar, shape (functions, pairs), float64.
    """

    labels: NDArray[np.float64]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted average precisions, as :meth:`Sample.statistic`."""
        return np.asarray(
            np.max([_average_precision(self.labels, row, weights) for row in self.scores], axis=0)
        )


class Interval(NamedTuple):
    """A percentile bootstrap interval of level `CONFIDENCE_LEVEL`."""

    low: float
    high: float


class IntervalEstimate(NamedTuple):
    """A number with its 95 % interval; NaN where one is undefined."""

    value: float
    low: float
    high: float

    def rounded(self) -> list[float | None]:
        """Return JSON values with four decimals, None for NaN."""
        return [None if math.isnan(one) else round(one, 4) for one in self]


def estimated(sample: Sample) -> IntervalEstimate:
    """Return a score with its bootstrap interval; NaN ends for too few items or an undefined statistic."""
    value = score_of(sample)
    try:
        return IntervalEstimate(value, *bootstrap_interval(sample))
    except ValueError:
        return IntervalEstimate(value, math.nan, math.nan)


def score_of(sample: Sample) -> float:
    """Return the score itself: every item counts once."""
    return float(sample.statistic(np.ones((1, len(sample))))[0])


def bootstrap_interval(sample: Sample, *, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """Return the percentile bootstrap interval of a score, over its items.

    The interval covers the choice of test items only, not training or labelling.

    Raises:
        ValueError: If there are fewer than two items, or the score is undefined in most resamples.
    """
    values = np.concatenate([sample.statistic(w) for w in resample_weights(len(sample), resamples, seed)])
    return quantiles(values)


def resample_weights(items: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each item is drawn in each resample: `(some of the resamples, items)` float64.

    Raises:
        ValueError: If there are fewer than two items.
    """
    if items < 2:
        raise ValueError(f"An interval needs at least two items, got {items}.")
    for drawn in resampled(items, resamples, seed):
        count = len(drawn)
        drawn += np.arange(count)[:, None] * items  # one bincount for all resamples of the chunk
        counts = np.bincount(drawn.ravel(), minlength=count * items).reshape(count, items)
        yield counts.astype(np.float64)


def quantiles(values: NDArray[np.float64]) -> Interval:
    """Return the interval of resampled scores.

    Raises:
        ValueError: If the score is undefined in most resamples.
    """
    defined = values[~np.isnan(values)]
    if len(defined) < len(values) / 2:
        raise ValueError("The score is undefined in most resamples; the test set is too small or constant.")
    # As np.quantile, which takes three times as long.
    places = np.array([(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2]) * (len(defined) - 1)
    low, high = np.interp(places, np.arange(len(defined)), np.sort(defined))
    return Interval(float(low), float(high))


def exact_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share: never [1, 1], even if every trial was a success."""
    from scipy.stats import binomtest  # lazy: scipy

    if not trials:
        return math.nan, math.nan
    bounds = binomtest(successes, trials).proportion_ci(level, method="exact")
    return float(bounds.low), float(bounds.high)


def smallest_difference(queries: int, deviation: float = 0.3) -> float:
    """Return the true difference of two systems' mean scores that a paired test finds four times in five.

    Two-sided at 5 %, by the normal approximation: `(z(0.975) + z(0.8)) * deviation / sqrt(queries)`.

    Args:
        queries: Number of queries.
        deviation: Standard deviation of the differences per query, assumed.
    """
    from scipy.stats import norm  # lazy: scipy

    return float((norm.ppf(0.975) + norm.ppf(0.8)) * deviation / math.sqrt(queries))


def _weighted_pearson(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    covariance = (weights * x * y).sum(axis=1)
    spread = np.sqrt((weights * x * x).sum(axis=1) * (weights * y * y).sum(axis=1))
    result = np.full(len(weights), np.nan)
    np.divide(covariance, spread, out=result, where=spread > 1e-12)
    return result


def _tie_ends(ordered: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the index of the last item of each run of equal values, one per run."""
    return np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)


def _weighted_ranks(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the average ranks in each resample; an item of weight w counts as w tied items."""
    order = np.argsort(values, kind="stable")
    ends = _tie_ends(values[order])
    upto = np.cumsum(weights[:, order], axis=1)[:, ends]
    before = np.concatenate([np.zeros((len(weights), 1)), upto[:, :-1]], axis=1)
    by_group = (before + upto + 1) / 2
    group_of = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    ranks = np.empty_like(weights)
    ranks[:, order] = by_group[:, group_of]
    return ranks


def _average_precision(
    labels: NDArray[np.float64], scores: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    order = np.argsort(-scores, kind="stable")
    ends = _tie_ends(scores[order])
    ordered = weights[:, order]
    retrieved = np.cumsum(ordered, axis=1)[:, ends]
    hits = np.cumsum(ordered * labels[order], axis=1)[:, ends]
    positives = hits[:, -1]
    precision = np.divide(hits, retrieved, out=np.zeros_like(hits), where=retrieved > 0)
    gained = np.diff(hits, axis=1, prepend=0.0)
    result = np.full(len(weights), np.nan)
    np.divide((gained * precision).sum(axis=1), positives, out=result, where=positives > 0)
    return result


@dataclass(frozen=True)
class GroupDifference:
    """Mean of a first group minus that of the others, adjusted for covariates (analysis of covariance).

    The statistic is the coefficient of the group in the least-squares regression of the values on group and
    covariates, a matching estimator that weights by variance (Angrist & Pischke 2009, "Mostly Harmless
    Econometrics", section 3.3.1). Without covariates it is the difference of the means. Resampling items
    assumes no constant variance (Freedman 1981, "Bootstrapping regression models", Annals of Statistics
    9(6)).

    Attributes:
        values: One value per item, `(items,)` float64.
        first: True for items of the first group, `(items,)` bool.
        covariates: `(items, covariates)` float64; there may be none.
    """

    values: NDArray[np.float64]
    first: NDArray[np.bool_]
    covariates: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the difference under each weighting; NaN where a group has no weight.

        Args:
            weights: Shape (resamples, items), float64: how often each item counts.
        """
        ones = np.ones((len(self), 1))
        design = np.concatenate([ones, self.first[:, None], self.covariates], axis=1)
        columns = design.shape[1]
        products = (design[:, :, None] * design[:, None, :]).reshape(len(self), columns * columns)
        squares = (weights @ products).reshape(-1, columns, columns)
        moments = weights @ (design * self.values[:, None])
        inverse = np.linalg.pinv(squares, rcond=1e-10, hermitian=True)
        coefficients = np.einsum("rp,rp->r", inverse[:, 1], moments)
        weight = weights @ self.first
        lacking = (weight == 0) | (weight == weights.sum(axis=1))
        return np.where(lacking, np.nan, coefficients)


def difficulty(measures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return covariates of measures such as lengths and counts: log(1 + x), standardised, and its square.

    Args:
        measures: `(items, measures)` float64, not negative.

    Returns:
        `(items, 2 * measures)` float64. A constant measure gives zeros, which change nothing.
    """
    logs = np.log1p(measures)
    spread = logs.std(axis=0)
    scaled = (logs - logs.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.concatenate([scaled, np.where(spread > 0, scaled**2 - 1, 0)], axis=1)
