"""Synonym STS: pairs of questions, from a dictionary of synonyms and queries that an LLM rewrites."""

from __future__ import annotations

from medteb_mteb.curation.sts.dictionary import Dictionary, DictionaryEntry, read_dictionary
from medteb_mteb.curation.sts.settings import StsSettings
from medteb_mteb.curation.sts.step import StsEstimate, StsReport, estimate, sts

__all__ = [
    "Dictionary",
    "DictionaryEntry",
    "StsEstimate",
    "StsReport",
    "StsSettings",
    "estimate",
    "read_dictionary",
    "sts",
]
