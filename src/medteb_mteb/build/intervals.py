"""Bootstrap intervals of what a build reports, by `medteb_mteb.report`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medteb_mteb.report.intervals import bootstrap_interval

if TYPE_CHECKING:
    from medteb_mteb.report.intervals import Sample

__all__ = ["interval", "rounded"]


def interval(sample: Sample) -> tuple[float, float]:
    """95 % percentile bootstrap interval; NaN where the items are too few, or the statistic is undefined."""
    try:
        found = bootstrap_interval(sample)
    except ValueError:
        return float("nan"), float("nan")
    return found.low, found.high


def rounded(value: float) -> float | None:
    """Four decimals, for JSON, which has no NaN."""
    return None if math.isnan(value) else round(value, 4)
