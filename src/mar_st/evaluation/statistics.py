"""Uncertainty of scores: bootstrap intervals, paired randomisation tests, seeds and queries as samples.

Scores of a model come as an array `(seeds, items)`: one value per query, or one predicted similarity per
pair. `Scores.kind` names the statistic: the mean, or the correlation with the gold values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

K = TypeVar("K")
Kind = Literal["mean", "pearson", "spearman"]

#: Values that are resampled at a time.
_MAX_VALUES = 1_000_000


@dataclass(frozen=True)
class Scores:
    """Scores of one model on one task.

    Attributes:
        values: `(seeds, items)` float64.
        gold: `(items,)` float64 for correlations, else `None`.
        kind: How the score is computed from the values.
    """

    values: Array
    gold: Array | None = None
    kind: Kind = "mean"

    def per_seed(self) -> Array:
        """Return the score of every seed, `(seeds,)`."""
        if self.gold is None:
            return np.asarray(self.values.mean(axis=1))
        return _correlations(self.values, np.broadcast_to(self.gold, self.values.shape), self.kind)


def resampled(items: int, resamples: int, seed: int | Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Yield the draws of a bootstrap: items with replacement, `(some of the resamples, items)` at a time.

    The number per step bounds the memory and does not change the draws.

    Args:
        items: Number of items.
        resamples: Number of resamples in all.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _MAX_VALUES // items)
    for start in range(0, resamples, step):
        yield rng.integers(0, items, (min(step, resamples - start), items))


def bootstrap(scores: Scores, *, resamples: int, seed: Sequence[int]) -> Array:
    """Return the scores of resampled items, averaged over the seeds, `(resamples,)`.

    Items are drawn with replacement and are the same for all seeds, so for a mean this is the bootstrap of
    the seed-averaged scores per query.

    Args:
        scores: Values of one model on one task.
        resamples: Number of resamples.
        seed: Seed of the draws.
    """
    chunks = []
    for index in resampled(scores.values.shape[1], resamples, list(seed)):
        if scores.gold is None:
            chunks.append(scores.values.mean(axis=0)[index].mean(axis=1))
        else:
            gold = scores.gold[index]
            each = [_correlations(row[index], gold, scores.kind) for row in scores.values]
            chunks.append(np.mean(each, axis=0))
    return np.concatenate(chunks)


def p_value(observed: float, drawn: Array) -> float:
    """Return the two-sided p-value of a randomisation test.

    The observed assignment counts as one of the draws, so p is never 0 (Davison & Hinkley 1997, section 4.3).
    """
    extreme = int(np.sum(np.abs(drawn) >= abs(observed) - 1e-12))
    return (extreme + 1) / (len(drawn) + 1)


@dataclass(frozen=True)
class Seeds:
    """Average scores of one row over its seeds, and the spread of the seeds.

    Attributes:
        scores: `(seeds,)` float64.
        variance: Variance of one seed; 0 for untrained rows.
        freedom: Degrees of freedom of the variance; 0 for untrained rows.
    """

    scores: Array
    variance: float
    freedom: int


def seed_variances(per_seed: Mapping[str, Array], trained: Container[str]) -> dict[str, Seeds]:
    """Return the variance between the seeds of every row.

    A trained row with one seed gets the pooled variance of the rows with several, if there are any.

    Args:
        per_seed: Average scores by row, `(seeds,)` each.
        trained: Rows that depend on a seed.
    """
    several = [scores for name, scores in per_seed.items() if name in trained and len(scores) > 1]
    freedom = sum(len(scores) - 1 for scores in several)
    pooled = sum(float(scores.var(ddof=1)) * (len(scores) - 1) for scores in several) / max(freedom, 1)
    variances = {}
    for name, scores in per_seed.items():
        if name not in trained:
            variances[name] = Seeds(scores, 0.0, 0)
        elif len(scores) > 1:
            variances[name] = Seeds(scores, float(scores.var(ddof=1)), len(scores) - 1)
        else:
            variances[name] = Seeds(scores, pooled, freedom)
    return variances


@dataclass(frozen=True)
class Mixed:
    """A difference of two rows with seeds and items both drawn at random.

    Attributes:
        difference: First minus second.
        low: Lower end of the 95 % interval.
        high: Upper end.
        p: Two-sided p-value.
    """

    difference: float
    low: float
    high: float
    p: float


def mixed(first: Seeds, second: Seeds, drawn: Array) -> Mixed:
    """Compare two rows, with training seeds and items both as random samples (Welch's t-test).

    The variance of the difference is the sum of three parts: that of the items, from a paired bootstrap of
    the seed-averaged scores; and that of the seeds of each row, divided by their number. Its degrees of
    freedom are those of Welch and Satterthwaite; the many items count as infinitely many.

    Args:
        first: Seeds of one row.
        second: Seeds of the other.
        drawn: Differences of the seed-averaged scores on resampled items, `(resamples,)`.
    """
    parts = [(seeds.variance / len(seeds.scores), seeds.freedom) for seeds in (first, second)]
    between = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    variance = float(drawn.var(ddof=1)) + sum(variance for variance, _ in parts)
    gap = float(first.scores.mean() - second.scores.mean())
    if variance == 0:
        return Mixed(gap, gap, gap, 1.0 if gap == 0 else 0.0)
    from scipy.stats import t as student_t  # lazy: scipy

    law = student_t(variance**2 / between if between else np.inf)
    error = math.sqrt(variance)
    half = float(law.ppf(0.975)) * error
    return Mixed(gap, gap - half, gap + half, 2 * float(law.sf(abs(gap) / error)))


def holm(p_values: Mapping[K, float]) -> dict[K, float]:
    """Return the p-values of several comparisons, adjusted for their number (Holm 1979)."""
    adjusted: dict[K, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def _correlations(values: Array, gold: Array, kind: Kind) -> Array:
    """Return the correlations of the rows of two `(rows, items)` arrays; 0 where one row is constant."""
    if kind == "spearman":
        from scipy.stats import rankdata  # lazy: scipy

        values, gold = rankdata(values, axis=1), rankdata(gold, axis=1)
    values = values - values.mean(axis=1, keepdims=True)
    gold = gold - gold.mean(axis=1, keepdims=True)
    scale = np.sqrt((values**2).sum(axis=1) * (gold**2).sum(axis=1))
    correlations: Array = (values * gold).sum(axis=1) / np.where(scale > 0, scale, np.inf)
    return correlations
