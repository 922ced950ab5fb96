"""Finding terms in texts: the longest first, and none inside a longer one."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Fold(dict[int, int]):
    """Folded characters by character; filled as they come."""

    def __missing__(self, code: int) -> int:
        folded = unicodedata.normalize("NFKC", chr(code)).lower()
        # One for one, so that places in the folded text are places in the text.
        self[code] = ord(folded) if len(folded) == 1 else code
        return self[code]


_FOLD = _Fold()


def fold(text: str) -> str:
    """Return the text in lower case and half width, folded by character, so that the length is the same."""
    return text.translate(_FOLD)


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A term in a text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        term: The term, folded.
    """

    start: int
    end: int
    term: str


class Terms:
    """Terms that are searched for in one pass (Aho and Corasick 1975, by the library `ahocorasick_rs`).

    Case and width do not count. A term of Latin letters or digits is not found in a longer word or number:
    "ct" is not in "acth", "维生素B" not in "维生素B12".

    Args:
        terms: The terms.

    Raises:
        MarError: ahocorasick_rs is not installed.
    """

    def __init__(self, terms: Iterable[str]) -> None:
        try:
            from ahocorasick_rs import AhoCorasick  # lazy: ahocorasick_rs
        except ImportError as error:
            raise MarError("Looking for terms needs ahocorasick_rs: pip install 'medteb[build]'") from error
        self._terms = sorted({fold(term) for term in terms})
        self._search = AhoCorasick(self._terms)

    def find(self, text: str) -> list[TermMatch]:
        """Return the terms of a text that do not overlap, in their order.

        Of terms that overlap the longest counts, of equally long ones the first.
        """
        matches = self.every(text)
        if len(matches) < 2:
            return matches
        matches.sort(key=lambda match: (match.start - match.end, match.start))
        kept: list[TermMatch] = []
        covered = bytearray(len(text))
        for match in matches:
            # A match kept before is at least as long, so it contains an end of every match it overlaps.
            if not (covered[match.start] or covered[match.end - 1]):
                covered[match.start : match.end] = b"\1" * (match.end - match.start)
                kept.append(match)
        return sorted(kept, key=lambda match: match.start)

    def every(self, text: str) -> list[TermMatch]:
        """Return all terms of a text, including those that overlap."""
        folded = fold(text)
        return [
            TermMatch(start, end, self._terms[number])
            for number, start, end in self._search.find_matches_as_indexes(folded, overlapping=True)
            if not (joined(folded, start) or joined(folded, end))
        ]


def joined(text: str, place: int) -> bool:
    """Return True if a position is inside a Latin word or a number."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    return before.isascii() and after.isascii() and before.isalnum() and after.isalnum()
