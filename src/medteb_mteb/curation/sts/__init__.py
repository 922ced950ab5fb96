"""Synonym STS: pairs of questions out of a dictionary of synonyms, queries and an LLM that rewrites them."""

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
