"""Judging pools of documents by several LLMs, on the published five-letter scale."""

from __future__ import annotations

from medteb_mteb.curation.judge.judges import Judge, Judges, LearnedJudge, load_judges
from medteb_mteb.curation.judge.judging import FAILED_FILE, JUDGEMENTS_FILE, PLACES_FILE, grade_pools
from medteb_mteb.curation.judge.material import Material, read_material, read_pools
from medteb_mteb.curation.judge.step import JUDGE, JudgeSettings, judge

__all__ = [
    "FAILED_FILE",
    "JUDGE",
    "JUDGEMENTS_FILE",
    "PLACES_FILE",
    "Judge",
    "JudgeSettings",
    "Judges",
    "LearnedJudge",
    "Material",
    "grade_pools",
    "judge",
    "load_judges",
    "read_material",
    "read_pools",
]
