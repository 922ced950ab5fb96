"""Asking LLMs behind OpenAI-compatible endpoints; every answer is paid for once, and kept in a journal."""

from __future__ import annotations

from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.config import LLM, load_llm
from medteb_mteb.curation.llm.database import JournalError
from medteb_mteb.curation.llm.estimate import Cost, added, estimate_cost
from medteb_mteb.curation.llm.generate import Generation, generate, refuse_unanswered
from medteb_mteb.curation.llm.paths import answers_path
from medteb_mteb.curation.llm.private import refuse_private
from medteb_mteb.curation.llm.prompt import Prompt, Rejected
from medteb_mteb.curation.llm.salvage import RepairedAnswers, repair_answers
from medteb_mteb.curation.llm.tolerant import json_object

__all__ = [
    "LLM",
    "Account",
    "Cost",
    "Generation",
    "JournalError",
    "Prompt",
    "Rejected",
    "RepairedAnswers",
    "added",
    "answers_path",
    "estimate_cost",
    "generate",
    "json_object",
    "load_llm",
    "refuse_private",
    "refuse_unanswered",
    "repair_answers",
]
