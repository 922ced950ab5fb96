"""Fetches data of open APIs into a folder that is frozen when the fetch is complete."""

from __future__ import annotations

from medteb_mteb.curation.relatives.fetch.sources import SOURCES, fetch_source, frozen_source

__all__ = ["SOURCES", "fetch_source", "frozen_source"]
