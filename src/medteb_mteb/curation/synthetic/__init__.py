"""Synthetic training data: queries written for documents, and examples of brainstormed tasks."""

from __future__ import annotations

from medteb_mteb.curation.synthetic.forms import parse_forms
from medteb_mteb.curation.synthetic.languages import checked
from medteb_mteb.curation.synthetic.queries import QuerySettings, estimate_queries, synthesize_queries
from medteb_mteb.curation.synthetic.report import SynthesisReport
from medteb_mteb.curation.synthetic.tasks import TaskSettings, estimate_tasks, synthesize_tasks

__all__ = [
    "QuerySettings",
    "SynthesisReport",
    "TaskSettings",
    "checked",
    "estimate_queries",
    "estimate_tasks",
    "parse_forms",
    "synthesize_queries",
    "synthesize_tasks",
]
