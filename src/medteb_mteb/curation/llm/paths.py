"""Paths of journals."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ANSWERS_VARIABLE", "answers_path", "journal_place"]

ANSWERS_VARIABLE = "MEDTEB_ANSWERS"


def journal_place(out: str | Path, journal: str | Path | None, variable: str, name: str) -> Path:
    """Return a journal's path: the given one, that of an environment variable, or a name beside the output.

    It is never inside the output folder, so that deleting the output does not delete paid answers.
    """
    return Path(journal or os.environ.get(variable) or Path(out).resolve().parent / name)


def answers_path(out: str | Path, journal: str | Path | None = None) -> Path:
    """Return the path of the answers: as given, `$MEDTEB_ANSWERS`, or `answers.sqlite` beside the output."""
    return journal_place(out, journal, ANSWERS_VARIABLE, "answers.sqlite")
