"""Documents of an index: ids and metadata in columns, titles and texts that are read for hits.

Two Arrow files, memory-mapped: `rows.arrow` (one batch: `id`, then the metadata, which filters read whole)
and `documents.arrow` (batches: `title`, `text`, of which a search reads the rows of its hits).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.files import move_file, one_line
from mar_st.index.errors import IndexingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from mar_st.index.filters import FieldCondition, FieldType, Filter, Scalar

ROWS, TEXTS = "rows.arrow", "documents.arrow"

#: Documents per batch of the file of texts.
DOCUMENTS_PER_BATCH = 2048
#: Maximum number of distinct strings of a field that is stored as a dictionary.
MAX_DICTIONARY_VALUES = 65_536

#: Up to this many rows are read one by one, which is faster.
_MAX_SINGLE_READS = 64

_TYPES: dict[FieldType, Any] = {
    "string": pa.large_string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_TEXT_SCHEMA = pa.schema([("title", pa.large_string()), ("text", pa.large_string())])
_COMPARE = {
    "gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal
}  # fmt: skip


class Stored(NamedTuple):
    """A document as the index keeps it.

    Attributes:
        id: Its id.
        title: Its title; empty if it has none.
        text: Its text; empty if the index was built without a corpus.
        metadata: Its fields that have a value.
    """

    id: str
    title: str
    text: str
    metadata: dict[str, Scalar]


class DocumentWriter:
    """Writes the documents of a segment, in the order of its vectors.

    Args:
        folder: Folder to write to; it exists.
        fields: Existing types of fields; values of another type are refused.
    """

    def __init__(self, folder: Path, fields: Mapping[str, FieldType] | None = None) -> None:
        self.folder, self.fixed = folder, dict(fields or {})
        self.ids: list[str] = []
        self._columns: dict[str, list[Scalar | None]] = {}
        self._known: dict[str, str] = {}
        self._titles: list[str] = []
        self._texts: list[str] = []
        self._file = pa.OSFile(str(folder / f"{TEXTS}.part"), "wb")
        self._writer = pa.ipc.new_file(self._file, _TEXT_SCHEMA)

    def add(self, document: Stored) -> None:
        """Take one document."""
        place = len(self.ids)
        self.ids.append(document.id)
        for field, value in document.metadata.items():
            if isinstance(value, float) and not math.isfinite(value):
                continue  # no condition matches NaN or infinity
            column = self._columns.setdefault(field, [])
            column.extend([None] * (place - len(column)))
            column.append(self._known.setdefault(value, value) if isinstance(value, str) else value)
        self._titles.append(document.title)
        self._texts.append(document.text)
        if len(self._texts) >= DOCUMENTS_PER_BATCH:
            self._flush()

    def close(self) -> dict[str, FieldType]:
        """Write the remaining documents and move the files into place.

        Returns:
            Types of the metadata fields. A field whose values are of several types is stored as strings.

        Raises:
            IndexingError: The values of a field differ from its existing type.
        """
        self._flush()
        self._writer.close()
        self._file.close()
        fields = {name: self._type(name, column) for name, column in sorted(self._columns.items())}
        arrays: list[Any] = [pa.array(self.ids, type=pa.large_string())]
        for name, kind in fields.items():
            column = self._columns.pop(name)
            column.extend([None] * (len(self.ids) - len(column)))
            arrays.append(_column(column, kind))
        batch = pa.record_batch(arrays, names=["id", *(f"metadata:{name}" for name in fields)])
        part = self.folder / f"{ROWS}.part"
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        move_file(self.folder / f"{TEXTS}.part", self.folder / TEXTS)
        move_file(part, self.folder / ROWS)
        return fields

    def _flush(self) -> None:
        if self._texts:
            self._writer.write_batch(pa.record_batch([self._titles, self._texts], schema=_TEXT_SCHEMA))
            self._titles, self._texts = [], []

    def _type(self, name: str, column: Sequence[Scalar | None]) -> FieldType:
        actual = common_type({type_of(value) for value in column if value is not None})
        fixed = self.fixed.get(name)
        if fixed is None or fixed == actual:
            return actual
        if fixed == "string" or (fixed == "number" and actual == "integer"):
            return fixed
        odd = next(
            place for place, value in enumerate(column) if value is not None and type_of(value) != fixed
        )
        raise IndexingError(
            f"The metadata field {name!r} is of type {fixed} in this index; document {self.ids[odd]!r} has "
            f"{column[odd]!r}. Give it the same type, or build the index again."
        )


def common_type(types: AbstractSet[FieldType]) -> FieldType:
    """Return the type of a field whose values are of these types."""
    if len(types) > 1:
        return "number" if types == {"integer", "number"} else "string"
    return next(iter(types), "string")


def type_of(value: Scalar) -> FieldType:
    """Return the type of one value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"
    return "number" if isinstance(value, float) else "string"


def _column(values: Sequence[Scalar | None], kind: FieldType) -> Any:
    if kind == "string":
        written = [
            None if value is None else value if isinstance(value, str) else json.dumps(value)
            for value in values
        ]
        array = pa.array(written, type=_TYPES[kind])
        encoded = array.dictionary_encode()
        limit = min(MAX_DICTIONARY_VALUES, max(16, len(array) // 4))
        return encoded if len(encoded.dictionary) <= limit else array
    if kind == "number":
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, type=_TYPES[kind])


class Documents:
    """The documents of a segment, mapped into memory.

    Raises:
        IndexingError: The files are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            rows = pa.ipc.open_file(pa.memory_map(str(folder / ROWS)))
            texts = pa.ipc.open_file(pa.memory_map(str(folder / TEXTS)))
            self._rows = rows.get_batch(0)
            self._batches = [texts.get_batch(number) for number in range(texts.num_record_batches)]
            _validate(self._rows, self._batches)
            self.ids: Any = self._rows.column("id")
            names = self._rows.schema.names[1:]  # `column` raises a KeyError for a name that occurs twice
            self._columns = {name.removeprefix("metadata:"): self._rows.column(name) for name in names}
        except FileNotFoundError:
            raise
        except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException) as error:
            raise IndexingError(
                f"The documents in {folder} are damaged ({one_line(error)}). Build the index again."
            ) from error
        # A list: looking up one number in it is faster than in an array.
        self._starts = [0, *accumulate(len(batch) for batch in self._batches)]
        self._strings = [
            (_Strings(batch.column(0), folder), _Strings(batch.column(1), folder)) for batch in self._batches
        ]
        self._names = _Strings(self.ids, folder)

    def __len__(self) -> int:
        return len(self.ids)

    def check(self, fields: Mapping[str, FieldType]) -> None:
        """Compare the types of the metadata with those of the index.

        Raises:
            IndexingError: A metadata field is stored as another type.
        """
        for name, column in self._columns.items():
            values = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            # Files of other writers may hold strings with 32-bit offsets.
            stored = pa.large_string() if pa.types.is_string(values) else values
            if name in fields and stored != _TYPES[fields[name]]:
                raise IndexingError(
                    f"The metadata field {name!r} is of type {fields[name]} in the index, but "
                    f"{self.folder / ROWS} stores it as {values}. Copy the index again, or build it again."
                )

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """Return the ids of some rows."""
        if len(rows) <= _MAX_SINGLE_READS:
            return [self._names[row] for row in rows.tolist()]
        ids: list[str] = self.ids.take(pa.array(rows)).to_pylist()
        return ids

    def texts(self, start: int, stop: int) -> Iterator[str]:
        """Yield the documents of a range of rows, as they are encoded (title, newline, text)."""
        for number, first in enumerate(self._starts[:-1]):
            titles, texts = self._strings[number]
            for row in range(max(start - first, 0), min(stop - first, len(self._batches[number]))):
                title, text = titles[row], texts[row]
                yield f"{title}\n{text}" if title else text

    def find(self, ids: Iterable[str]) -> np.ndarray:
        """Return rows whose id is one of the given ones, ascending int64."""
        names = list(ids)
        try:
            wanted = pa.array(names, type=pa.large_string())
        except UnicodeEncodeError as error:
            raise IndexingError(f"An id is not valid Unicode ({one_line(error)}).") from error
        return np.flatnonzero(pc.is_in(self.ids, value_set=wanted).to_numpy(zero_copy_only=False))

    def mask(self, where: Filter) -> np.ndarray:
        """Return the mask of documents that pass a typed filter, `(n,)` bool."""
        passed = np.ones(len(self), dtype=bool)
        for condition in where.conditions:
            column = self._columns.get(condition.field)
            if column is None:
                return np.zeros(len(self), dtype=bool)
            passed &= _passing(column, condition)
        return passed

    def document(self, row: int) -> Stored:
        """Return the document of a row."""
        return self.documents([row])[0]

    def documents(self, rows: Sequence[int]) -> list[Stored]:
        """Return the documents of some rows."""
        metadata: list[dict[str, Scalar]] = [{} for _ in rows]
        chosen = pa.array(rows, type=pa.int64()) if len(rows) > _MAX_SINGLE_READS else None
        for name, column in self._columns.items():
            values = [column[row].as_py() for row in rows] if chosen is None else _values_at(column, chosen)
            for fields, value in zip(metadata, values, strict=True):
                if value is not None:
                    fields[name] = value
        return [Stored(*self._strings_of(row), fields) for row, fields in zip(rows, metadata, strict=True)]

    def _strings_of(self, row: int) -> tuple[str, str, str]:
        """Return the id, title and text of a row."""
        number = bisect_right(self._starts, row) - 1
        titles, texts = self._strings[number]
        place = row - self._starts[number]
        return self._names[row], titles[place], texts[place]


def _validate(rows: Any, texts: Sequence[Any]) -> None:
    """Check what Arrow itself trusts: the types of columns and the offsets in their files.

    Raises:
        pa.ArrowException: A type or offset differs from what a build writes.
    """
    if rows.column("id").type != pa.large_string() or any(part.schema != _TEXT_SCHEMA for part in texts):
        raise pa.ArrowInvalid("the columns have other types than a build writes")
    rows.validate(full=True)
    for part in texts:
        part.validate()
    if any(column.null_count for part in texts for column in part.columns) or rows.column("id").null_count:
        raise pa.ArrowInvalid("ids, titles or texts are missing")


def _values_at(column: Any, rows: Any) -> list[Scalar | None]:
    """Return the values of a column in many rows; an Arrow scalar for each would take microseconds."""
    selected = column.take(rows)
    values: list[Scalar | None] = (
        selected.dictionary_decode() if isinstance(selected, pa.DictionaryArray) else selected
    ).to_pylist()
    return values


class _Strings:
    """The values of a `large_string` column without nulls, read without an Arrow scalar for each.

    Texts are not checked before they are read. Offsets beyond the file return less text and do not crash.
    """

    def __init__(self, column: Any, folder: Path) -> None:
        self._folder = folder
        _, offsets, data = column.buffers()
        self._offsets = memoryview(offsets).cast("q")[column.offset :]
        self._data = memoryview(data if data is not None else b"")

    def __getitem__(self, row: int) -> str:
        try:
            return str(self._data[self._offsets[row] : self._offsets[row + 1]], "utf-8")
        except UnicodeDecodeError as error:
            raise IndexingError(
                f"The documents in {self._folder} are damaged ({error}). Copy the index again, or build it "
                "again."
            ) from error


def _passing(column: Any, condition: FieldCondition) -> np.ndarray:
    """Return the mask of values of a column that meet a typed condition, `(n,)` bool; missing ones do not."""
    if isinstance(column, pa.DictionaryArray):
        # Only the distinct values are compared; one more slot stands for missing ones.
        indices = column.indices
        if pa.types.is_unsigned_integer(indices.type):  # other writers' files; -1 does not fit there
            indices = indices.cast(pa.int64(), safe=False)
        places: np.ndarray = indices.fill_null(-1).to_numpy(zero_copy_only=False)
        distinct = np.append(_passing(column.dictionary, condition), np.array([False]))
        return np.asarray(distinct[places])
    if condition.any_of is not None:
        values = list(condition.any_of)
        if column.type == pa.float64() and 0.0 in values:
            values.append(-0.0)  # Arrow looks values up by their bits
        mask = pc.is_in(column, value_set=pa.array(values, type=column.type))
    else:
        tests = [
            _COMPARE[name](column, pa.scalar(value, type=column.type)) for name, value in condition.bounds
        ]
        mask = reduce(pc.and_, tests)
    passed: np.ndarray = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return passed.copy() if not passed.flags.writeable else passed
