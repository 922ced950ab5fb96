"""Selection of the queries to rewrite: those that have a term of a dictionary of synonyms."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.text.texts import normalise
from mar_st.text.values import as_text
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.step import SEED
from medteb_mteb.curation.texts.terms import Terms, fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mar_st.data.rows import Row
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.texts.terms import TermMatch
    from medteb_mteb.curation.training.rows import Rows

#: Share of a query's length by which that of a positive rewrite may differ, as published.
TOLERANCE = 0.3
#: Letters that a question has besides its term.
MIN_LETTERS = 2


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """A term and a synonym of it.

    Attributes:
        origin: The term as used in queries.
        replace: The synonym.
    """

    origin: str
    replace: str

    @property
    def pair(self) -> tuple[str, str]:
        """Return both terms, folded, in an order independent of the direction."""
        first, second = sorted((fold(self.origin), fold(self.replace)))
        return first, second


class Dictionary:
    """Entries, and the positions of their terms in a text.

    Args:
        entries: The entries; of entries that differ only in case or width, the first counts.

    Attributes:
        entries: The entries.
        terms: All terms, synonyms included: a term that is part of a synonym is not found in it.
    """

    def __init__(self, entries: Iterable[DictionaryEntry]) -> None:
        every = list(entries)
        if not every:
            raise MarError("The dictionary holds no entries.")
        known: dict[tuple[str, str], DictionaryEntry] = {}
        for entry in every:
            known.setdefault((fold(entry.origin), fold(entry.replace)), entry)
        self.entries = tuple(known.values())
        self.terms = Terms(term for entry in self.entries for term in (entry.origin, entry.replace))
        self._by_origin: dict[str, list[DictionaryEntry]] = {}
        for (origin, _), entry in known.items():
            self._by_origin.setdefault(origin, []).append(entry)

    def of(self, term: str) -> list[DictionaryEntry]:
        """Return the entries of a term, in their order.

        Args:
            term: The term, folded.
        """
        return self._by_origin.get(term, [])


def read_dictionary(source: str | Path) -> Dictionary:
    """Return the dictionary of a file or folder of rows with the columns `origin` and `replace`.

    A term with several synonyms has a row for each.

    Raises:
        MarError: The rows cannot be read, or are not terms.
    """
    return Dictionary(read_rows(source, _entry))


def _entry(row: Row) -> DictionaryEntry:
    terms = [as_text(row.values.get(column)) for column in ("origin", "replace")]
    if terms[0] is None or terms[1] is None:
        raise MarError(f"expected 'origin' and 'replace', two terms; got {', '.join(map(str, row.values))}.")
    entry = DictionaryEntry(terms[0].strip(), terms[1].strip())
    if fold(entry.origin) == fold(entry.replace):
        raise MarError(f"origin and replace are the same term: {entry.origin!r}.")
    return entry


@dataclass(frozen=True, slots=True)
class SwappedQuery:
    """A query to be rewritten.

    Attributes:
        query: The query.
        entry: The dictionary entry with the term to replace and its synonym.
        swapped: The query with the synonym instead of the term.
    """

    query: Text
    entry: DictionaryEntry
    swapped: str


def select(
    queries: Iterable[Text], dictionary: Dictionary, rows: Rows, *, per_entry: int | None = None
) -> list[SwappedQuery]:
    """Return the queries to rewrite, in their order: those with a term of the dictionary.

    Of several terms of a query the longest is replaced; of equally long ones, and of the synonyms of one
    term, one is drawn by the query's id.

    Args:
        queries: The queries.
        dictionary: The dictionary.
        rows: Receives the other queries. Reasons: `duplicate` of an earlier query, `no-term`, `has-synonym`
            (each of its terms occurs together with its synonym), `instruction` (it looks like an instruction
            to a model), `bare-term` (it has almost no other words than its term), `no-room` (its synonym is
            so long that no positive could have the allowed length), `per-entry` (above that setting).
        per_entry: Maximum number of queries of one entry, sampled; `None`: all.
    """
    candidates: list[SwappedQuery] = []
    first: dict[str, str] = {}
    for query in queries:
        plain = normalise(query.full) or query.full
        if plain in first:
            rows.drop(query.to_json(), "duplicate", first[plain])
            continue
        first[plain] = query.id
        places = dictionary.terms.find(query.full)
        entry, reason = _choose(places, dictionary, random.Random(f"{SEED} {query.id}"))
        reason = reason if entry is None else _unfit(query.full, entry)
        if entry is None or reason:
            rows.drop(query.to_json(), reason)
            continue
        candidates.append(SwappedQuery(query, entry, _swapped(query.full, entry, places)))
    return _drawn(candidates, per_entry, rows)


def _choose(
    places: Sequence[TermMatch], dictionary: Dictionary, rng: random.Random
) -> tuple[DictionaryEntry | None, str]:
    terms = sorted({place.term for place in places if dictionary.of(place.term)})
    if not terms:
        return None, "no-term"
    occurring = {place.term for place in places}
    rng.shuffle(terms)
    for term in sorted(terms, key=len, reverse=True):
        # A question that names both synonyms would name one of them twice after the replacement.
        free = [entry for entry in dictionary.of(term) if not occurring & (set(entry.pair) - {term})]
        if free:
            return rng.choice(free), ""
    return None, "has-synonym"


def _unfit(text: str, entry: DictionaryEntry) -> str:
    """Return the reason why a query is unusable although it has a term."""
    if suspicious(text):
        return "instruction"
    if says_little(text, entry.origin):
        return "bare-term"
    return "no-room" if len(entry.replace) + MIN_LETTERS > bounds(text)[1] else ""


def _swapped(text: str, entry: DictionaryEntry, places: Sequence[TermMatch]) -> str:
    parts, end = [], 0
    for place in places:
        if place.term in entry.pair:  # its synonym does not occur in the text
            parts += [text[end : place.start], entry.replace]
            end = place.end
    return "".join([*parts, text[end:]])


def _drawn(candidates: list[SwappedQuery], per_entry: int | None, rows: Rows) -> list[SwappedQuery]:
    """Return at most `per_entry` queries of an entry, in their order."""
    # By a number that depends on the query only: a further query does not change which others are paid for.
    order = sorted(candidates, key=lambda one: random.Random(f"{SEED} limit {one.query.id}").random())
    counts: Counter[tuple[str, str]] = Counter()
    kept = set()
    for one in order:
        counts[one.entry.pair] += 1
        if per_entry is None or counts[one.entry.pair] <= per_entry:
            kept.add(one.query.id)
    for one in (one for one in candidates if one.query.id not in kept):
        rows.drop(one.query.to_json(), "per-entry", f"{one.entry.origin} {one.entry.replace}")
    return [one for one in candidates if one.query.id in kept]


def bounds(query: str) -> tuple[int, int]:
    """Return the fewest and most characters that a positive rewrite may have."""
    length = len(query.strip())
    # The small constant compensates for rounding errors such as 0.3 x 10 = 2.9999...
    allowed = math.floor(TOLERANCE * length + 1e-9)
    return max(1, length - allowed), length + allowed


def says_little(text: str, term: str) -> bool:
    """Return True if a text says next to nothing besides the term."""
    return len(normalise(text)) - len(normalise(term)) < MIN_LETTERS
