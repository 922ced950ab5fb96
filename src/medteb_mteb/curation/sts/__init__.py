"""Synonym STS: an LLM rewrites queries that have a term of a dictionary of synonyms."""

from __future__ import annotations

from medteb_mteb.curation.sts.step import STS, StsSettings, sts

__all__ = ["STS", "StsSettings", "sts"]
