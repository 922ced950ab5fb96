"""Result tables with bootstrap intervals and paired tests."""

from __future__ import annotations

from medteb_mteb.report.holes import DATA_UNREADABLE, Holes
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
from medteb_mteb.report.scores import (
    ItemScores,
    NoItemScoresError,
    item_scores,
    load_item_scores,
    save_item_scores,
    save_no_item_scores,
)
from medteb_mteb.report.table import ResultTable, ScoreEntry

__all__ = [
    "DATA_UNREADABLE",
    "AveragePrecisionSample",
    "Comparison",
    "CorrelationSample",
    "Holes",
    "Interval",
    "ItemScores",
    "MeanSample",
    "NoItemScoresError",
    "ResultTable",
    "Sample",
    "ScoreEntry",
    "bootstrap_interval",
    "compare",
    "item_scores",
    "load_item_scores",
    "save_item_scores",
    "save_no_item_scores",
    "score_of",
]
