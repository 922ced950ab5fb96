"""Intervals for the reports of a build: bootstrap by `medteb_mteb.report`, exact ones of shares, power."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medteb_mteb.report.intervals import bootstrap_interval

if TYPE_CHECKING:
    from medteb_mteb.report.intervals import Sample

__all__ = ["exact_interval", "finite_interval", "interval", "rounded", "smallest_difference"]


def interval(sample: Sample) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval; NaN for too few items or an undefined statistic."""
    try:
        bounds = bootstrap_interval(sample)
    except ValueError:
        return float("nan"), float("nan")
    return bounds.low, bounds.high


def exact_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share: never [1, 1], even if every trial was a success."""
    from scipy.stats import binomtest  # lazy: scipy

    if not trials:
        return float("nan"), float("nan")
    bounds = binomtest(successes, trials).proportion_ci(level, method="exact")
    return float(bounds.low), float(bounds.high)


def finite_interval(successes: int, drawn: int, population: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a population share from draws without replacement.

    It holds the shares that neither tail of the hypergeometric distribution rejects (W. Cochran, Sampling
    Techniques, 1977, section 3.6): narrower than Clopper-Pearson's, and a single point if all were drawn.

    Args:
        successes: Number of successes among the drawn items.
        drawn: Number of drawn items.
        population: Number of all items.
        level: Confidence level.
    """
    from scipy.stats import hypergeom  # lazy: scipy

    if not drawn:
        return float("nan"), float("nan")
    tail = (1 - level) / 2
    fewest, most = successes, population - (drawn - successes)
    low, high = fewest, most  # the smallest count that the upper tail does not reject
    while low < high:
        middle = (low + high) // 2
        if hypergeom.sf(successes - 1, population, middle, drawn) > tail:
            high = middle
        else:
            low = middle + 1
    first, low, high = low, low, most  # the largest that the lower tail does not
    while low < high:
        middle = (low + high + 1) // 2
        if hypergeom.cdf(successes, population, middle, drawn) > tail:
            low = middle
        else:
            high = middle - 1
    return first / population, low / population


def smallest_difference(queries: int, deviation: float = 0.3) -> float:
    """Return the true difference of two systems' mean scores that a paired test finds four times in five.

    Two-sided at 5 %, by the normal approximation: `(z(0.975) + z(0.8)) * deviation / sqrt(queries)`.

    Args:
        queries: Number of queries.
        deviation: Standard deviation of the differences per query, assumed.
    """
    from scipy.stats import norm  # lazy: scipy

    return float((norm.ppf(0.975) + norm.ppf(0.8)) * deviation / math.sqrt(queries))


def rounded(value: float) -> float | None:
    """Return a number with four decimals for JSON; None for NaN, which JSON lacks."""
    return None if math.isnan(value) else round(value, 4)
