"""Result tables with bootstrap intervals and paired tests."""

from __future__ import annotations

from medteb_mteb.report.intervals import (
    AveragePrecisionSample,
    Comparison,
    CorrelationSample,
    Interval,
    MeanSample,
    Sample,
    bootstrap_interval,
    compare,
    score_of,
)
from medteb_mteb.report.scores import load_items, save_items
from medteb_mteb.report.table import HOLES, ResultTable, ScoreEntry

__all__ = [
    "HOLES",
    "AveragePrecisionSample",
    "Comparison",
    "CorrelationSample",
    "Interval",
    "MeanSample",
    "ResultTable",
    "Sample",
    "ScoreEntry",
    "bootstrap_interval",
    "compare",
    "load_items",
    "save_items",
    "score_of",
]
