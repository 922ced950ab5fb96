"""Nano sets from retrieval folders, by the protocol of HAKARI-Bench (arXiv 2606.22778 and its builder)."""

from __future__ import annotations

from medteb_mteb.curation.nano.build import NanoSettings, build_nano
from medteb_mteb.curation.nano.sample import Sampled, SourceRows, read_source, sample

__all__ = ["NanoSettings", "Sampled", "SourceRows", "build_nano", "read_source", "sample"]
