"""Reading a corpus, entry by entry or its texts alone: JSONL, CSV, Parquet, a folder, `datasets`, the Hub.

Only the current entry is in memory. An entry is a row with `_id` (or `id`), `text` and maybe `title`; its
other fields, and those of an object `metadata`, are metadata if they are strings, numbers or booleans. Cells
of CSV that hold a number are numbers, and empty ones are absent.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tqdm import tqdm

from mar_st.data.rows import Row, read_rows
from mar_st.errors import MarError
from mar_st.files import printable
from mar_st.text.texts import join_document
from mar_st.text.values import TsvCell, as_id, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


Scalar: TypeAlias = str | int | float | bool

#: Type of a metadata field.
FieldType: TypeAlias = Literal["string", "number", "boolean"]

#: Fields that are not metadata.
_ENTRY_FIELDS = ("_id", "id", "title", "text", "metadata")

#: Numbers of more than 64 bits are no metadata, nor are NaN and infinity.
_TOO_LARGE = 2**63

#: Share of numbers above which a field is one of numbers; its other values take part in no comparison.
NUMBER_SHARE = 0.5


#: A number in a CSV cell; others, such as 007, are texts.
_CELL_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?")


class Entry(NamedTuple):
    """A document of a corpus.

    Attributes:
        id: Its id, unique in the corpus.
        title: Its title; empty if it has none.
        text: Its text.
        metadata: Its other fields: strings, numbers, booleans.
    """

    id: str
    title: str
    text: str
    metadata: dict[str, Scalar]

    @property
    def document(self) -> str:
        """Return the encoded text: title, newline, text, or the text alone."""
        return f"{self.title}\n{self.text}" if self.title else self.text


def read_corpus(source: str | Path, table: str = "corpus") -> Iterator[Entry]:
    """Yield the entries of a corpus in their order.

    Args:
        source: A file (JSONL, CSV, TSV, Parquet), a folder that holds such a file named `corpus`, a folder
            that `datasets` saved, or a data set of the Hub (`hub:ORG/NAME[:CONFIG]:SPLIT`).
        table: Name of the file in a folder: `corpus` or `queries`.

    Raises:
        MarError: The source does not exist, or a row is not a document; the message names file and line.
    """
    yield from read_rows(source, _entry, table=table)


def _entry(found: Row) -> Entry:
    row: dict[str, Any] = found.values
    given = row.get("_id") if row.get("_id") is not None else row.get("id")
    identity, text, title = as_id(given), row.get("text", ""), row.get("title") or ""
    if identity is None:
        got = f"got {given!r}" if given is not None else f"it has {sorted(map(str, row))}"
        raise MarError(f"needs an '_id', a string or a whole number; {got}.")
    shown = printable(identity)[:200]
    if not isinstance(text, str) or not isinstance(title, str):
        raise MarError(f"'text' and 'title' of document {shown} should be strings.")
    if not text.strip() and not title.strip():
        raise MarError(f"document {shown} is empty: it has neither a text nor a title.")
    nested = row.get("metadata")
    fields = {**row, **nested} if isinstance(nested, dict) else row
    values = ((str(key), _cell(value)) for key, value in fields.items() if key not in _ENTRY_FIELDS)
    metadata = {
        key: value
        for key, value in values
        if isinstance(value, str) or (isinstance(value, int | float) and abs(value) < _TOO_LARGE)
    }
    try:
        strings = [value for value in metadata.values() if isinstance(value, str)]
        "".join([identity, title, text, *metadata, *strings]).encode()
    except UnicodeEncodeError as error:
        raise MarError(f"document {shown} holds half of a surrogate pair, which is not text.") from error
    return Entry(identity, str(title), str(text), metadata)


def _cell(value: Any) -> Any:
    """Return the value of a field: what a cell of CSV stands for, `None` if it is empty."""
    if not isinstance(value, TsvCell):
        return value
    if _CELL_NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return str(value) if value.strip() else None


def read_texts(source: str | Path, *, table: str = "") -> list[str]:
    """Return the distinct texts of a source in their order.

    Args:
        source: See `read_rows`; rows hold `text` (and maybe `title`, which goes before it) or `query`. A
            `.txt` file holds one text per line.
        table: Name of the files in a folder, `corpus` or `queries`.

    Raises:
        MarError: A row has no text, or there are no rows.
    """
    texts = list(dict.fromkeys(read_rows(source, _text, table=table)))
    if not texts:
        raise MarError(f"{source} holds no texts.")
    return texts


def _text(row: Row) -> str:
    values = row.values
    text = as_text(values.get("text") or values.get("query"))
    if text is None:
        raise MarError(f"needs a 'text' (or 'query') that is not empty; it has {sorted(values)}.")
    return join_document({"text": text, "title": as_text(values.get("title")) or ""})


def texts_by_id(source: str | Path, table: str) -> dict[str, str]:
    """Return the texts of `corpus` or `queries` in a folder by id; titles of a corpus go before the texts.

    Raises:
        MarError: A row is not a document or a query, or an id occurs twice.
    """
    texts: dict[str, str] = {}

    def make(row: Row) -> None:
        entry = _entry(row)
        text = entry.document if table == "corpus" else entry.text
        if not text.strip() or entry.id in texts:
            raise MarError(f"the id {entry.id!r} {'occurs twice' if text.strip() else 'has no text'}.")
        texts[entry.id] = text

    for _ in read_rows(source, make, table=table):
        pass
    return texts


def type_of(value: Scalar) -> FieldType:
    """Return the type of one value."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


class FieldTypes:
    """Types of the metadata fields of a corpus, counted entry by entry."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[FieldType]] = {}
        self._first: dict[tuple[str, FieldType], str] = {}

    def add(self, entry: Entry) -> None:
        """Count the fields of one document."""
        for name, value in entry.metadata.items():
            if value != "":
                kind = type_of(value)
                self._counts.setdefault(name, Counter())[kind] += 1
                self._first.setdefault((name, kind), f"{value!r} ({entry.id})")

    def types(self) -> dict[str, FieldType]:
        """Return the type of each field: the only one, numbers if most values are, or else strings."""
        return {name: self._type(counts) for name, counts in sorted(self._counts.items())}

    def odd(self) -> list[str]:
        """Return a line for each field and type of values that is not the field's."""
        return [
            f"field {name!r} is of type {kind}, but {count:,} of its {self._counts[name].total():,} values "
            f"are of type {other}, first {self._first[name, other]}; "
            f"{'they are compared as texts' if kind == 'string' else 'comparisons skip them'}"
            for name, kind in self.types().items()
            for other, count in self._counts[name].items()
            if other != kind
        ]

    @staticmethod
    def _type(counts: Counter[FieldType]) -> FieldType:
        if counts["number"] > NUMBER_SHARE * counts.total():
            return "number"
        return next(iter(counts)) if len(counts) == 1 else "string"


@dataclass(frozen=True)
class Scan:
    """Counts and digest found by one pass over a corpus.

    Attributes:
        source: The corpus.
        rows: Documents per shard.
        count: Number of documents.
        digest: Digest of ids and texts of all documents, in order.
        odd: A line for each metadata field with values of several types.
    """

    source: str
    rows: int
    count: int
    digest: str
    odd: tuple[str, ...] = ()

    @property
    def shards(self) -> int:
        """Return the number of shards."""
        return -(-self.count // self.rows)

    def size(self, number: int) -> int:
        """Return the number of documents of a shard."""
        return min(self.rows, self.count - number * self.rows)


def scan_corpus(source: str | Path, rows: int, *, show_progress: bool = True) -> Scan:
    """Read a corpus once, before anything is computed, for errors, repeated ids and the digest.

    Args:
        source: See `read_corpus`.
        rows: Documents per shard.
        show_progress: Show a progress bar.

    Raises:
        MarError: The corpus cannot be read or is empty, or an id occurs twice.
    """
    digest, seen, types = hashlib.sha256(), set[bytes](), FieldTypes()
    bar = tqdm(read_corpus(source), desc="reading", unit="documents", disable=not show_progress, leave=False)
    for entry in bar:
        key = hashlib.blake2b(entry.id.encode(), digest_size=16).digest()
        if key in seen:
            raise MarError(
                f"{source}: the id {entry.id!r} occurs twice. Every document needs an id of its own."
            )
        seen.add(key)
        types.add(entry)
        for part in (entry.id.encode(), entry.document.encode()):  # so that no two rows give the same bytes
            digest.update(len(part).to_bytes(8, "little") + part)
    if not seen:
        raise MarError(f"{source} holds no documents.")
    return Scan(str(source), rows, len(seen), digest.hexdigest(), tuple(types.odd()))


class ShardReader:
    """Reads shards of a scanned corpus in ascending order; a smaller number starts at the beginning again."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._next = 0
        self._entries = read_corpus(scan.source)

    def read(self, number: int) -> list[Entry]:
        """Return the documents of a shard."""
        if number < self._next:
            self._entries, self._next = read_corpus(self.scan.source), 0
        start = (number - self._next) * self.scan.rows
        self._next = number + 1
        return list(islice(self._entries, start, start + self.scan.size(number)))
