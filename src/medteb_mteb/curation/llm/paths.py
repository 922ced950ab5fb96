"""Paths of journals."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ANSWERS_VARIABLE", "answers_path", "journal_place"]

ANSWERS_VARIABLE = "MEDTEB_ANSWERS"


def journal_place(out: str | Path, journal: str | Path | None, variable: str, name: str) -> Path:
    """A journal's path: as given, or as an environment variable says, or of a name beside the output.

    Never inside it: who deletes the output keeps what was paid for.
    """
    return Path(journal or os.environ.get(variable) or Path(out).resolve().parent / name)


def answers_path(out: str | Path, journal: str | Path | None = None) -> Path:
    """Return the path of the answers: as given, `$MEDTEB_ANSWERS`, or `answers.sqlite` beside the output."""
    return journal_place(out, journal, ANSWERS_VARIABLE, "answers.sqlite")
