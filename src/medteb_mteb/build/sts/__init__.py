"""Synonym STS: pairs of questions out of a dictionary of synonyms, queries and an LLM that rewrites them."""

from __future__ import annotations

from medteb_mteb.build.sts.dictionary import Dictionary, Entry, read_dictionary
from medteb_mteb.build.sts.settings import Settings
from medteb_mteb.build.sts.step import Estimate, Report, estimate, sts

__all__ = ["Dictionary", "Entry", "Estimate", "Report", "Settings", "estimate", "read_dictionary", "sts"]
