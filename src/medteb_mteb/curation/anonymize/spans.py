"""Spans of identifiers in a text, and the resolution of overlaps."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Span", "disjoint"]

_ORDER = {kind: number for number, kind in enumerate(IDENTIFIER_KINDS)}


class Span(NamedTuple):
    """An identifier in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        kind: One of `IDENTIFIER_KINDS`.
    """

    start: int
    end: int
    kind: str


def disjoint(spans: Iterable[Span], text: str) -> list[Span]:
    """Return spans that do not overlap and cover every letter and digit of the given spans.

    Of overlapping spans, the longest one is kept; of equally long spans, the one with the more specific kind
    (the order of `IDENTIFIER_KINDS`). The rest of a span beyond the kept one becomes a separate span.

    Returns:
        The spans, sorted by start.
    """
    ranked = sorted(set(spans), key=lambda span: (span.start - span.end, _ORDER[span.kind], span.start))
    taken: list[Span] = []
    for span in ranked:
        for start, end in _free(span, taken):
            if any(char.isalnum() for char in text[start:end]):
                insort(taken, Span(start, end, span.kind))
    return taken


def _start(span: Span) -> int:
    return span.start


def _free(span: Span, taken: list[Span]) -> list[tuple[int, int]]:
    """Return the parts of a span that no span of `taken` covers; `taken` is sorted and without overlap."""
    parts, position = [], span.start
    number = max(bisect_left(taken, span.start, key=_start) - 1, 0)
    while number < len(taken) and taken[number].start < span.end:
        other = taken[number]
        if other.start > position:
            parts.append((position, other.start))
        position = max(position, other.end)
        number += 1
    if position < span.end:
        parts.append((position, span.end))
    return parts
