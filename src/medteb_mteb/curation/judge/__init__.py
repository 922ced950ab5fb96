"""Judging pools of documents by several LLMs, on the published five-letter scale."""

from __future__ import annotations

from medteb_mteb.curation.judge.config import Judge, Judges, LearnedJudge, load_judges
from medteb_mteb.curation.judge.estimate import Estimate, estimate, journal_path
from medteb_mteb.curation.judge.judging import judge
from medteb_mteb.curation.judge.repair import Repaired, repair_journal
from medteb_mteb.curation.judge.report import JudgeReport, JudgeResult
from medteb_mteb.curation.llm.database import JournalError

__all__ = [
    "Estimate",
    "JournalError",
    "Judge",
    "JudgeReport",
    "JudgeResult",
    "Judges",
    "LearnedJudge",
    "Repaired",
    "estimate",
    "journal_path",
    "judge",
    "load_judges",
    "repair_journal",
]
