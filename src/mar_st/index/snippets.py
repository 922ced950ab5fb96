"""Snippets: the part of a text that holds most of a query's terms."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from mar_st.text.words import query_terms

#: Minimum (if the text is long enough) and maximum characters of a snippet, without ellipses.
MIN_CHARACTERS, MAX_CHARACTERS = 80, 120

#: Characters of a window in which terms begin.
_SPAN = 72

#: Maximum characters of a text to search, terms of a query, places of one term, and windows. They keep the
#: input of a caller from making a search slow.
_MAX_SEARCHED_CHARACTERS, MAX_TERMS, _MAX_PLACES, _MAX_STARTS = 20_000, 64, 32, 512

_SENTENCE_END = re.compile(r"[。！？；!?;…]\s*|\n+|\.\s")
_SPACE = re.compile(r"\s+")


def snippet(text: str, query: str | None = None) -> str:
    """Return the window of 80 to 120 characters that holds most of a query's terms.

    It starts and ends at the boundaries of sentences if there are any nearby; `…` marks omissions.

    Args:
        text: The text.
        query: The query; without one, the beginning of the text is returned.
    """
    text = text[:_MAX_SEARCHED_CHARACTERS].strip()
    if len(text) <= MAX_CHARACTERS:
        return _SPACE.sub(" ", text)
    start = _start(text, _best(text, query) if query else 0)
    end = _end(text, start)
    cut = _SPACE.sub(" ", text[start:end].strip())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def _best(text: str, query: str) -> int:
    """Return the start of the window with most distinct terms of a query; 0 without any."""
    lower = text.lower()
    if len(lower) != len(text):  # so that places in it are places in the text
        lower = "".join(one.lower() if len(one.lower()) == 1 else one for one in text)
    found = [_places(lower, term) for term in _terms(query)]
    starts = sorted({place for places in found for place in places})[:_MAX_STARTS]

    def distinct(start: int) -> int:
        return sum(bisect_left(places, start) < bisect_left(places, start + _SPAN) for places in found)

    return max(starts, key=distinct, default=0)


@lru_cache(maxsize=16)
def _terms(query: str) -> list[str]:
    """Return the terms of a query to look for, once for all its hits."""
    return query_terms(query)[:MAX_TERMS]


def _places(text: str, term: str) -> list[int]:
    """Return where a term begins in a text, in order."""
    places: list[int] = []
    at = text.find(term)
    while at >= 0 and len(places) < _MAX_PLACES:
        places.append(at)
        at = text.find(term, at + 1)
    return places


def _start(text: str, first: int) -> int:
    """Return a start at or before the first term: that of its sentence, or a few characters before."""
    room = MAX_CHARACTERS - MIN_CHARACTERS
    ends = [match.end() for match in _SENTENCE_END.finditer(text, max(0, first - room), first)]
    start = 0 if first <= room else ends[0] if ends else first - room // 4
    return max(0, min(start, len(text) - MIN_CHARACTERS))


def _end(text: str, start: int) -> int:
    """Return the end of the longest run of sentences that fits, if it is long enough."""
    if len(text) - start <= MAX_CHARACTERS:
        return len(text)
    ends = [
        match.end() for match in _SENTENCE_END.finditer(text, start + MIN_CHARACTERS, start + MAX_CHARACTERS)
    ]
    return ends[-1] if ends else start + MAX_CHARACTERS
