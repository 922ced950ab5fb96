"""BibTeX of a task that cites several sources."""

from __future__ import annotations

import re

__all__ = ["cite"]


def cite(*citations: str | None) -> str:
    """Return the BibTeX entries of all citations once each, sorted by key as mteb's own tests require.

    Args:
        citations: BibTeX with one or more entries each; `None` for a source without one.
    """
    entries = {
        entry.strip(): None
        for text in citations
        for entry in re.split(r"\n(?=@)", (text or "").strip())
        if entry.strip()
    }
    return "\n" + "\n\n".join(sorted(entries, key=_key)) + "\n"


def _key(entry: str) -> str:
    return entry.partition("{")[2].partition(",")[0].lower()
