"""Data of published English sets, built from the raw files of their sources."""

from __future__ import annotations

from medteb_mteb.curation.relatives.build import (
    SETS,
    build_set,
    build_snapshot_task,
    build_written_task,
    estimate_written_task,
)
from medteb_mteb.curation.relatives.english import SNAPSHOT_TASKS
from medteb_mteb.curation.relatives.medte import build_pairs
from medteb_mteb.curation.relatives.written import WRITTEN_TASKS, Drafts, WriterSettings

__all__ = [
    "SETS",
    "SNAPSHOT_TASKS",
    "WRITTEN_TASKS",
    "Drafts",
    "WriterSettings",
    "build_pairs",
    "build_set",
    "build_snapshot_task",
    "build_written_task",
    "estimate_written_task",
]
