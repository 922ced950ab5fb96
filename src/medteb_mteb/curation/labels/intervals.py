"""Intervals for the reports of a build: bootstrap by `medteb_mteb.report`, exact ones of shares, power."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medteb_mteb.report.intervals import bootstrap_interval

if TYPE_CHECKING:
    from medteb_mteb.report.intervals import Sample


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
