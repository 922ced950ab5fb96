"""Checks of values in the rows of data sets: texts, ids, numbers, grades and dates."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

__all__ = ["TsvCell", "as_date", "as_grade", "as_id", "as_number", "as_text", "is_document", "writable"]


class TsvCell(str):
    """A TSV cell: text that may stand for a number."""

    __slots__ = ()


def as_text(value: Any) -> str | None:
    """Return the value if it is text with something in it that can be encoded, else None."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        value.encode("utf-8")  # JSON can smuggle in lone surrogates, which no tokenizer takes
    except UnicodeEncodeError:
        return None
    return str(value)


def writable(text: str) -> str:
    """Return a text that files and tokenizers take: JSON can hold lone surrogates, which become `?`."""
    return text.encode("utf-8", "replace").decode()


def as_id(value: Any) -> str | None:
    """Return the id as text, or None if it is not usable as an id.

    Whole numbers are written out; so are `1.0` and the like, which pandas makes of a column with gaps,
    also in a TSV cell.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, TsvCell) and value.endswith(".0") and value[:-2].isdecimal():
        value = value[:-2]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return as_text(value)


def as_number(value: Any) -> float | None:
    """Return the finite number that a value or a TSV cell holds, or None."""
    if isinstance(value, TsvCell):
        try:
            value = None if "_" in value else float(value)  # Python reads 1_0 as 10
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None


def as_grade(value: Any) -> int | None:
    """Return the grade, a whole number of 32 bits, also of `2.0` and out of a TSV cell, or None."""
    number = as_number(value)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**31 else None


def as_date(value: Any) -> str | None:
    """Return an ISO date (`2026-10-05`) or month (`2026-10`) as text, or None for anything else."""
    text = str(value)
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?", text):
        return None
    try:
        date.fromisoformat(text if len(text) == 10 else f"{text}-01")
    except ValueError:
        return None
    return text


def is_document(text: Any, title: str | None = None) -> bool:
    """Return True if a text with a title can be scored; a document may consist of its title alone."""
    if as_text(text) is None:
        return bool(text == "" and as_text(title) is not None)
    return not title or title.isspace() or as_text(title) is not None
