"""The part of a text that shows best why it was found."""

from __future__ import annotations

import re
from functools import lru_cache

from mar_st.words import query_terms

#: Characters of a snippet at least (where the text has them) and at most, marks of omission left out.
SHORTEST, LONGEST = 80, 120

#: Characters of a text that are looked through.
_LOOKED_THROUGH = 100_000

_END = re.compile(r"[。！？；!?;…]\s*|\n+|\.\s")
_SPACE = re.compile(r"\s+")


def snippet(text: str, query: str | None = None) -> str:
    """The window of 80 to 120 characters that holds most of a query's terms.

    It starts and ends with a sentence where one starts and ends near by; what is left out is marked with `…`.

    Args:
        text: The text.
        query: The query; without one the beginning of the text is given.
    """
    text = text[:_LOOKED_THROUGH].strip()
    if len(text) <= LONGEST:
        return _SPACE.sub(" ", text)
    start = _start(text, _best(text, query) if query else 0)
    end = _end(text, start)
    cut = _SPACE.sub(" ", text[start:end].strip())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def _best(text: str, query: str) -> int:
    """Where the window starts that holds most different terms, and of those most terms; else 0."""
    pattern = _pattern(query)
    if pattern is None:
        return 0
    found = [(match.start(), match.group(1).lower()) for match in pattern.finditer(text)]
    counts: dict[str, int] = {}
    best, place, first = (0, 0), 0, 0
    for last, (at, term) in enumerate(found):
        counts[term] = counts.get(term, 0) + 1
        while at + len(term) - found[first][0] > SHORTEST:
            gone = found[first][1]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            first += 1
        score = (len(counts), last - first + 1)
        if score > best:
            best, place = score, found[first][0]
    return place


@lru_cache(maxsize=16)
def _pattern(query: str) -> re.Pattern[str] | None:
    """What finds the terms of a query, also where they overlap; made once for all its hits."""
    terms = query_terms(query)
    if not terms:
        return None
    either = "|".join(map(re.escape, sorted(terms, key=len, reverse=True)))
    return re.compile(f"(?=({either}))", re.IGNORECASE)


def _start(text: str, first: int) -> int:
    """A start at or before the first term: that of its sentence, or a few characters before."""
    room = LONGEST - SHORTEST
    ends = [match.end() for match in _END.finditer(text, max(0, first - room), first)]
    start = 0 if first <= room else ends[0] if ends else first - room // 4
    return max(0, min(start, len(text) - SHORTEST))


def _end(text: str, start: int) -> int:
    """The end of the longest run of sentences that fits, if it is long enough."""
    if len(text) - start <= LONGEST:
        return len(text)
    ends = [match.end() for match in _END.finditer(text, start + SHORTEST, start + LONGEST)]
    return ends[-1] if ends else start + LONGEST
