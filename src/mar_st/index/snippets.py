"""Snippets: the part of a text that holds most of a query's terms."""

from __future__ import annotations

import re
from functools import lru_cache

from mar_st.text.words import query_terms

#: Minimum (if the text is long enough) and maximum characters of a snippet, without ellipses.
MIN_CHARACTERS, MAX_CHARACTERS = 80, 120

#: Maximum characters of a text to search, distinct terms of a query to search for, and places of one term to
#: count. They keep the input of a caller from making a search slow.
_MAX_SEARCHED_CHARACTERS, MAX_TERMS, _MAX_PLACES_PER_TERM = 20_000, 64, 256

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
    """Return the start of the window with most distinct terms (ties: with most terms), 0 without any."""
    places = _places(_lower(text), _terms(query))
    counts: dict[str, int] = {}
    best, place, first = (0, 0), 0, 0
    for last, (at, term) in enumerate(places):
        counts[term] = counts.get(term, 0) + 1
        while at + len(term) - places[first][0] > MIN_CHARACTERS:
            dropped = places[first][1]
            counts[dropped] -= 1
            if not counts[dropped]:
                del counts[dropped]
            first += 1
        score = (len(counts), last - first + 1)
        if score > best:
            best, place = score, places[first][0]
    return place


@lru_cache(maxsize=16)
def _terms(query: str) -> tuple[str, ...]:
    """Return the terms of a query to search for, the shortest first; computed once for all its hits."""
    # A term longer than the window cannot be in it, so searching for it would be wasted.
    terms = [term for term in query_terms(query) if len(term) <= MIN_CHARACTERS]
    return tuple(sorted(terms[:MAX_TERMS], key=len))


def _places(text: str, terms: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return places of terms in a text in lower case, also where they overlap; at each the longest term."""
    term_at: dict[int, str] = {}
    for term in terms:
        at = text.find(term)
        for _ in range(_MAX_PLACES_PER_TERM):
            if at < 0:
                break
            term_at[at] = term
            at = text.find(term, at + 1)
    return sorted(term_at.items())


def _lower(text: str) -> str:
    """Return a text in lower case, character by character where that would change its length (`İ`)."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(
        lowered if len(lowered) == 1 else character for character in text for lowered in [character.lower()]
    )


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
