"""Diversification: the dynamic index filter, exact or approximate, over vectors or as a step over texts."""

from __future__ import annotations

from medteb_mteb.curation.diversify.core import Search, diversify
from medteb_mteb.curation.diversify.disagreement import Disagreement, measure_disagreement
from medteb_mteb.curation.diversify.execution import run_diversify
from medteb_mteb.curation.diversify.rule import THRESHOLDS, SelectionRule
from medteb_mteb.curation.diversify.sources import Encoded, PrecomputedVectors, TextVectors
from medteb_mteb.curation.diversify.step import Diversify, centres_sample
from medteb_mteb.curation.diversify.vectors import unit

__all__ = [
    "THRESHOLDS",
    "Disagreement",
    "Diversify",
    "Encoded",
    "PrecomputedVectors",
    "Search",
    "SelectionRule",
    "TextVectors",
    "centres_sample",
    "diversify",
    "measure_disagreement",
    "run_diversify",
    "unit",
]
