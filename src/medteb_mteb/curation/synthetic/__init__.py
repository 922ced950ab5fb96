"""Synthetic training data: queries for documents, and whole retrieval tasks."""

from __future__ import annotations

from medteb_mteb.curation.synthetic.queries import SYNTHESIZE_QUERIES, QuerySettings, synthesize_queries
from medteb_mteb.curation.synthetic.tasks import SYNTHESIZE_TASKS, TaskSettings, synthesize_tasks

__all__ = [
    "SYNTHESIZE_QUERIES",
    "SYNTHESIZE_TASKS",
    "QuerySettings",
    "TaskSettings",
    "synthesize_queries",
    "synthesize_tasks",
]
