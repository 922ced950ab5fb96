"""Provenance of an edition: how and when it was made, from `provenance.json` beside its data.

The file is not part of the edition's identity: the same data made on another day have the same digest.
It holds no text of queries or documents::

    sources         name, licence and address of the texts' sources
    anonymisers     version, and whether strict
    retrievers      name, identity, depth and size of the pools
    judges          settings, and `answered`: date (UTC), model and fingerprint as the server gave them, pairs
    writers         the same of LLMs that wrote texts of the edition
    consensus       rule, positive grades, numbers of labels, agreement
    contamination   tests searched for in training sets, and the matches
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.editions.manifest import PROVENANCE, EditionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["days", "mappings", "read_provenance"]


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return the content of the `provenance.json` of a folder; empty if there is none.

    Raises:
        EditionError: The file is not a JSON object.
    """
    path = folder / PROVENANCE
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\u" in text:  # a lone surrogate could not be written to a card or a datasheet
            json.dumps(content, ensure_ascii=False).encode()
    except (OSError, ValueError, RecursionError) as error:
        raise EditionError(f"{path} cannot be read as JSON ({error}). Restore it, or delete it.") from None
    if not isinstance(content, dict):
        raise EditionError(f"{path} does not hold a JSON object. Restore it, or delete it.")
    return content


def mappings(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of the list under a key; empty without such a list."""
    items = content.get(key)
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def days(judges: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return first and last day on which judges answered; one if they are equal, none if they are unknown.

    Args:
        judges: Judges or writers, as stored in `provenance.json`.
    """
    answers = [one.get("date") for judge in judges for one in mappings(judge, "answered")]
    dates = sorted({date for date in answers if isinstance(date, str) and date})
    return tuple(dict.fromkeys((dates[0], dates[-1]))) if dates else ()
