"""Asking LLMs behind OpenAI-compatible endpoints; every answer is paid for once, and kept in a journal."""

from __future__ import annotations

from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text
from medteb_mteb.curation.llm.config import LLM, added, load_llm, settings_digest
from medteb_mteb.curation.llm.generate import Generation, Job, ask
from medteb_mteb.curation.llm.journal import Journal, journal_path
from medteb_mteb.curation.llm.settings import refuse_private
from medteb_mteb.curation.llm.tolerant import Members, Rejected, json_object, json_values, spoken
from medteb_mteb.curation.step import tokens_of

__all__ = [
    "LLM",
    "Generation",
    "Job",
    "Journal",
    "Members",
    "Prompt",
    "Rejected",
    "added",
    "ask",
    "journal_path",
    "json_object",
    "json_values",
    "load_llm",
    "object_schema",
    "prompt_text",
    "refuse_private",
    "settings_digest",
    "spoken",
    "tokens_of",
]
