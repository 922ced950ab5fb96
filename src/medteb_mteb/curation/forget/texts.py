"""The texts to forget: where they are in rows, and the passages by which copies of them are found.

A text is cut into passages of 40 bytes of UTF-8, so a copy of twice that length holds a whole passage.
Passages that are also in texts of other ids (phrases, boilerplate) are left out. A text that is shorter than
a passage is found only where it is a whole value: a cell, a field, an element of a list.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mar_st.errors import MarError
from mar_st.files import load_package
from mar_st.text.texts import text_digest
from mar_st.text.values import as_id
from medteb_mteb.curation.files.read import FIELD_KEYS
from medteb_mteb.curation.texts.near_duplicates import shingles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

#: Bytes of UTF-8 of a passage.
PASSAGE_BYTES = 40
#: Columns with the id of the text in a row.
OWN_IDS = ("_id", "id", "docid")
#: Characters of the pieces by which two texts of one id are compared, and the share that related ones have.
_PIECE, _RELATED = 4, 0.2
#: Share of the passages of a text from which a text of another id is reported as similar.
_SIMILAR = 0.3
#: In the place of a removed element.
_GONE = object()

Row = dict[str, Any]


def passages_of(text: str) -> list[str]:
    """Return the passages of a text, without gaps from its start to its end; none of a shorter text."""
    size = len(text.encode())
    if size < PASSAGE_BYTES:
        return []
    width = math.ceil(PASSAGE_BYTES * len(text) / size)
    starts = [*range(0, len(text) - width, width), len(text) - width]
    return list(dict.fromkeys(text[start : start + width] for start in starts))


class Texts(BaseModel):
    """The texts to forget.

    Attributes:
        ids: Ids of the documents and queries.
        values: The texts, alone and with their titles.
        passages: What is found anywhere: passages, and long texts without a passage of their own.
        notes: Remarks for the user.
    """

    ids: set[str]
    values: set[str] = Field(default_factory=set)
    passages: set[str] = Field(default_factory=set)
    notes: list[str] = Field(default_factory=list)

    @cached_property
    def digests(self) -> set[bytes]:
        """Return the digests (16 bytes) by which journals and folders of vectors know the texts."""
        return {text_digest(text) for text in self.values}

    @cached_property
    def _search(self) -> Any:
        return automaton(self.passages)

    def holds(self, text: str) -> bool:
        """Return True if a value is one of the texts, or holds a passage of one."""
        return text.strip() in self.values or bool(self._search.find_matches_as_indexes(text))

    def cut(self, row: Row, *, root: bool = False, inner: bool = False) -> Row | None:
        """Return a row without what is to be forgotten; None if nothing of the row is left.

        An id or a text takes the row with it, and in a list only its element. Lists of the same length in a
        row are taken for one table, so they lose the same places. A row that has an id of its own is the text
        of another: it is only searched for ids.

        Args:
            row: The row.
            root: The row is the content of a JSON file: its entries go alone.
            inner: It is an object inside a row.
        """
        by_text = root or not any(key in row for key in OWN_IDS)
        unnamed = not (root or inner or any(map(_is_id, row)))
        kept: Row = {}
        for key, value in row.items():
            if root and key in self.ids and not isinstance(value, str):
                continue
            new, lost = value, False
            if isinstance(value, list):
                new = [self._element(key, one, by_text=by_text) for one in value]
            elif isinstance(value, dict):
                new = self.cut(value, root=root, inner=True)
                lost = new is None
            else:
                by_id = _is_id(key) or (unnamed and isinstance(value, str) and not value.isdecimal())
                lost = self._wanted(value, by_text=by_text, by_id=by_id)
            if lost and not root:
                return None
            if not lost:
                kept[key] = new
        places: dict[int, set[int]] = {}
        for value in filter(lambda one: isinstance(one, list), kept.values()):
            gone = {place for place, one in enumerate(value) if one is _GONE}
            places.setdefault(len(value), set()).update(gone)
        if not any(places.values()):
            return kept
        left = _without(kept, places)
        emptied = any(kept[key] and value == [] for key, value in left.items())
        return None if emptied and not root else left

    def _wanted(self, value: Any, *, by_text: bool, by_id: bool) -> bool:
        if by_id and value is not None and as_id(value) in self.ids:
            return True
        return by_text and isinstance(value, str) and self.holds(value)

    def _element(self, key: str, one: Any, *, by_text: bool) -> Any:
        """Return an element of a list without what is to be forgotten, or `_GONE`."""
        if isinstance(one, dict):
            new = self.cut(one, inner=True)
            return _GONE if new is None else new
        by_id = isinstance(one, str) or _is_id(key)
        return _GONE if self._wanted(one, by_text=by_text, by_id=by_id) else one


def _is_id(key: str) -> bool:
    return key.lower().endswith(("id", "ids"))


def _without(content: Row, places: Mapping[int, set[int]]) -> Row:
    """Return a row whose lists, also those of objects in it, lack the places that go by their length."""
    left: Row = {}
    for key, value in content.items():
        if isinstance(value, dict):
            left[key] = _without(value, places)
        elif isinstance(value, list):
            gone = places.get(len(value), set())
            left[key] = [one for place, one in enumerate(value) if place not in gone]
        else:
            left[key] = value
    return left


def automaton(needles: Iterable[str]) -> Any:
    """Return a search for any of many strings, whose `find_matches_as_indexes` takes a text."""
    return load_package("ahocorasick_rs", extra="build").AhoCorasick(sorted(needles))


def collect(ids: set[str], rows: Callable[[], Iterable[tuple[Path, Row]]], *, every: bool) -> Texts:
    """Find the texts of some ids, and the passages that are theirs alone.

    Args:
        ids: The ids.
        rows: Returns all rows, each with its file.
        every: Take all texts of an id, also if they have nothing in common.

    Raises:
        MarError: No row has one of the ids, or texts of one have nothing in common.
    """
    texts = Texts(ids=ids)
    of_id: dict[str, dict[str, Path]] = {}
    for path, row in rows():
        own = _own_id(row, ids)
        if own in ids:
            for text in _own_texts(row):
                of_id.setdefault(own, {}).setdefault(text, path)
    missing = sorted(ids - of_id.keys())
    if missing:
        texts.notes.append(f"no text has the id {', '.join(missing[:9])}{' ...' * (len(missing) > 9)}")
    for name, found in of_id.items():
        if not every:
            _check_related(name, found)
        texts.values |= {text.strip() for text in found}
    owners = {
        passage: name for name, found in of_id.items() for text in found for passage in passages_of(text)
    }
    shared = _shared(texts, owners, rows())
    texts.passages = owners.keys() - shared
    for text in texts.values:
        parts = passages_of(text)
        if parts and not texts.passages.intersection(parts):
            texts.passages.add(text)
    return texts


def _own_id(row: Row, ids: set[str]) -> str:
    """Return the id of the text of a row; where no column is one of ids, the cell that is a wanted one."""
    key = next((key for key in FIELD_KEYS["id"] if key in row), None)
    if key is not None:
        return as_id(row[key]) or ""
    unnamed = row.values() if not any(map(_is_id, row)) else ()
    return next((str(value) for value in unnamed if isinstance(value, str) and value in ids), "")


def _own_texts(row: Row) -> Iterator[str]:
    """Yield the text of a row, alone and with its title, its messages, and its other long strings."""
    strings = {key: value for key, value in row.items() if isinstance(value, str)}
    named = next((key for key in FIELD_KEYS["text"] if strings.get(key, "").strip()), None)
    if named is not None:
        yield strings[named]
        if title := strings.get("title"):
            yield f"{title}\n{strings[named]}"
    if named is None or any(key in row for key in OWN_IDS):
        long = (value for value in strings.values() if len(value.encode()) >= PASSAGE_BYTES)
        yield from (value for value in long if named is None or value != strings[named])
    messages = row.get("prompt")  # of a rubric
    for one in messages if isinstance(messages, list) else ():
        if isinstance(one, dict) and isinstance(one.get("content"), str):
            yield one["content"]


def _check_related(name: str, found: Mapping[str, Path]) -> None:
    """Refuse an id of several persons: each of its texts shares a part with the longest.

    Raises:
        MarError: A text shares nothing.
    """
    longest = max(found, key=len)
    pieces = shingles(longest, _PIECE)
    for text, path in found.items():
        own = shingles(text, _PIECE)
        if len(own & pieces) < _RELATED * len(own) and text.strip() not in longest:
            raise MarError(
                f"The texts of {name!r} in {path} and {found[longest]} have nothing in common and may be of "
                "two persons. Give narrower folders by --in, or --every to forget both."
            )


def _shared(texts: Texts, owners: Mapping[str, str], rows: Iterable[tuple[Path, Row]]) -> set[str]:
    """Return the passages that texts of other ids have, too, and take short texts from `texts.values`."""
    shared: set[str] = set()
    search, names = automaton(owners), sorted(owners)
    copies, similar = set[str](), set[str]()
    total = Counter(owners.values())
    for _, row in rows:
        own = next((as_id(row[key]) for key in OWN_IDS if key in row), None)
        if own is None or own in texts.ids:
            continue
        for value in filter(lambda one: isinstance(one, str), row.values()):
            if value.strip() in texts.values:
                copies.add(own)
                if len(value.encode()) < PASSAGE_BYTES:
                    texts.values.discard(value.strip())
                continue
            found = {
                names[number] for number, _, _ in search.find_matches_as_indexes(value, overlapping=True)
            }
            shared |= found
            counts = Counter(owners[one] for one in found)
            similar |= {own for name, number in counts.items() if number >= _SIMILAR * total[name]}
    for what, some in (("the same text", copies), ("a similar text", similar - copies)):
        if some:
            texts.notes.append(
                f"{what} is under {', '.join(sorted(some)[:9])}{' ...' * (len(some) > 9)}, which stays; name "
                "that id, too, if it is of the same person"
            )
    return shared
