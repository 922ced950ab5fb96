"""The parts of a pipeline file that all its steps share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from medteb_mteb.curation.judge import Judges
from medteb_mteb.curation.llm import LLM

__all__ = ["PipelineSettings"]


class PipelineSettings(BaseModel):
    """A pipeline without its steps.

    Attributes:
        out: Folder to write, relative to the folder of the file.
        already_anonymous: Send texts that were not anonymised.
        judges: The judges, as in their YAML file, or its path.
        llm: The LLM that writes texts, as in its YAML file, or its path.
        journal: Journal of judgements; default `$MEDTEB_JOURNAL`, or `judgements.sqlite` in `out`.
        answers: Journal of the LLM's answers; default `$MEDTEB_ANSWERS`, or `answers.sqlite` in `out`.
        store: Folder of stored vectors; default `$MAR_STORE`, or `teacher-store` in `out`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    out: str = "build"
    already_anonymous: bool = False
    judges: Judges | None = None
    llm: LLM | None = None
    journal: str | None = None
    answers: str | None = None
    store: str | None = None
