"""Documents of an index: texts that are read for hits, and metadata columns that filters compare.

Two Arrow files, mapped into memory: `documents.arrow` (`id`, `title`, `text`, and all metadata as JSON) and
`fields.arrow` (a typed column for each metadata field).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.data.corpus import Entry, FieldType, FieldTypes, Scalar, type_of
from mar_st.errors import MarError
from mar_st.files import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mar_st.encode.folder import VectorFolder
    from mar_st.index.filters import FieldCondition, Filter

DOCUMENTS, FIELDS = "documents.arrow", "fields.arrow"

#: Documents per batch of the file of texts.
_DOCUMENTS_PER_BATCH = 2048

_SCHEMA = pa.schema([(name, pa.large_string()) for name in ("id", "title", "text", "metadata")])
_TYPES: dict[FieldType, Any] = {"string": pa.large_string(), "number": pa.float64(), "boolean": pa.bool_()}
_COMPARE = {"gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal}


def write_documents(
    folder: Path, documents: Iterable[Entry], fields: Mapping[str, FieldType] | None = None
) -> dict[str, FieldType]:
    """Write the documents of a segment, in the order of its vectors.

    Args:
        folder: Folder to write to.
        documents: The documents.
        fields: Existing types of metadata fields; values of other types are not compared.

    Returns:
        The types of all metadata fields.
    """
    folder.mkdir(exist_ok=True)
    types, count = FieldTypes(), 0
    columns: dict[str, list[Scalar | None]] = {}
    rows: list[tuple[str, str, str, str]] = []
    with pa.ipc.new_file(str(folder / DOCUMENTS), _SCHEMA) as writer:

        def flush() -> None:
            writer.write_batch(
                pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=_SCHEMA)
            )
            rows.clear()

        for document in documents:
            types.add(document)
            for name, value in document.metadata.items():
                column = columns.setdefault(name, [])
                column.extend([None] * (count - len(column)))
                column.append(value)
            metadata = json.dumps(document.metadata, ensure_ascii=False) if document.metadata else ""
            rows.append((document.id, document.title, document.text, metadata))
            count += 1
            if len(rows) >= _DOCUMENTS_PER_BATCH:
                flush()
        if rows:
            flush()
    known = {**types.types(), **(fields or {})}
    arrays = {name: _column(columns.get(name, []), known[name], count) for name in sorted(known)}
    table = pa.table(arrays)
    with pa.ipc.new_file(str(folder / FIELDS), table.schema) as writer:
        writer.write_table(table)
    return known


def _column(values: Sequence[Scalar | None], kind: FieldType, count: int) -> Any:
    if kind == "string":
        written: list[Any] = [
            value if value is None or isinstance(value, str) else json.dumps(value) for value in values
        ]
    else:
        written = [value if value is not None and type_of(value) == kind else None for value in values]
        written = [float(value) if kind == "number" and value is not None else value for value in written]
    array = pa.array([*written, *[None] * (count - len(values))], type=_TYPES[kind])
    return array.dictionary_encode() if kind == "string" else array


class Documents:
    """The documents of a segment, mapped into memory.

    Attributes:
        ids: Their ids.
    """

    def __init__(self, folder: Path) -> None:
        texts = pa.ipc.open_file(pa.memory_map(str(folder / DOCUMENTS)))
        self._batches = [texts.get_batch(number) for number in range(texts.num_record_batches)]
        fields = pa.ipc.open_file(pa.memory_map(str(folder / FIELDS))).read_all()
        self.ids = pa.chunked_array([batch.column(0) for batch in self._batches], type=pa.large_string())
        # A list: looking up one number in it is faster than in an array.
        self._starts = [0, *accumulate(len(batch) for batch in self._batches)]
        self._fields: dict[str, Any] = {name: fields[name].combine_chunks() for name in fields.column_names}

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> Entry:
        number = bisect_right(self._starts, row) - 1
        batch, place = self._batches[number], row - self._starts[number]
        name, title, text, metadata = (batch.column(column)[place].as_py() for column in range(4))
        return Entry(name, title, text, json.loads(metadata) if metadata else {})

    def id(self, row: int) -> str:
        """Return the id of a row."""
        number = bisect_right(self._starts, row) - 1
        name: str = self._batches[number].column(0)[row - self._starts[number]].as_py()
        return name

    def texts(self) -> Iterator[str]:
        """Yield the documents as they are encoded (title, newline, text)."""
        return (self[row].document for row in range(len(self)))

    def find(self, ids: Iterable[str]) -> np.ndarray:
        """Return rows whose id is one of the given ones, ascending int64."""
        try:
            wanted = pa.array(list(ids), type=pa.large_string())
        except UnicodeEncodeError as error:
            raise MarError(f"An id is not valid Unicode ({one_line(error)}).") from error
        return np.flatnonzero(pc.is_in(self.ids, value_set=wanted).to_numpy())

    def mask(self, where: Filter) -> np.ndarray:
        """Return the mask of documents that pass a typed filter, `(n,)` bool."""
        passed = np.ones(len(self), dtype=bool)
        for condition in where.conditions:
            column = self._fields.get(condition.field)
            passed &= False if column is None else _passing(column, condition)
        return passed


def _passing(column: Any, condition: FieldCondition) -> np.ndarray:
    """Return the mask of values of a column that meet a typed condition, `(n,)` bool; missing ones do not."""
    if isinstance(column, pa.DictionaryArray):  # only the distinct values are compared
        places: np.ndarray = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
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
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False))


def documents_of(folder: VectorFolder, corpus: str | Path | None) -> Iterator[Entry]:
    """Yield the documents of a folder of vectors, in its order; without a corpus, only ids.

    Raises:
        MarError: Ids repeat, or corpus and vectors do not belong together.
    """
    from mar_st.data.corpus import read_corpus  # lazy: datasets
    from mar_st.encode.folder import text_digests  # lazy: safetensors

    names = folder.ids.to_pylist()
    if len(set(names)) < len(names):
        raise MarError(f"Ids repeat in {folder.path}; every document needs an id of its own.")
    if corpus is None:
        yield from (Entry(name, "", "", {}) for name in names)
        return
    entries = read_corpus(corpus)
    digests = (digest for chunk in folder.text_digests.chunks for digest in chunk.to_pylist())
    for name, digest in zip(names, digests, strict=True):
        entry = next(entries, None)
        known = entry is not None and any(digest)
        if entry is None or entry.id != name or (known and text_digests([entry.document])[0] != digest):
            raise MarError(
                f"{corpus} is not the corpus that was encoded into {folder.path}: document {name!r} is "
                f"missing, elsewhere or changed{f' ({entry.id!r} is there)' if entry is not None else ''}. "
                "Give the encoded corpus, or encode this one."
            )
        yield entry
    if next(entries, None) is not None:
        raise MarError(f"{corpus} has more documents than {folder.path} has vectors. Encode it again.")
