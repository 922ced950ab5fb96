"""Data of published English sets out of the raw files of their sources."""

from __future__ import annotations

from medteb_mteb.curation.relatives.build import SETS, build_set, build_snapshot_task
from medteb_mteb.curation.relatives.english import SNAPSHOT_TASKS
from medteb_mteb.curation.relatives.medte import build_pairs

__all__ = ["SETS", "SNAPSHOT_TASKS", "build_pairs", "build_set", "build_snapshot_task"]
