"""Texts and triples in Arrow tables: read like lists, as compact as their characters.

A list of Python objects costs several kilobytes per triple and is copied for every process. These hold the
texts once, in memory or in a mapped file, and make Python objects of the requested rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.data.arrow import ROWS_PER_READ, forget_pages
from mar_st.data.records import DataError, Triple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Columns of a table of triples; the first `positives` of the documents are positives, the others negatives.
TRIPLES_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("documents", pa.list_(pa.string())),
        ("positives", pa.int32()),
        ("instruction", pa.string()),
        ("source", pa.string()),
    ]
)

#: Column of a table of texts.
TEXTS_SCHEMA = pa.schema([("text", pa.string())])

#: Bytes of text after which a pass over a mapped file releases the pages that it has read.
RELEASE_BYTES = 2**26

#: Chunks of a mapped file after which taking rows releases the pages that it has read.
RELEASE_CHUNKS = 128


class Texts(Sequence[str]):
    """A sequence of texts in Arrow arrays.

    Args:
        chunks: String arrays, one after another.
        rows: Indices of the texts to include, counted over all arrays, in order; `None`: all.
    """

    def __init__(self, chunks: Sequence[pa.Array], rows: np.ndarray | None = None) -> None:
        self.chunks = [chunk for chunk in chunks if len(chunk)]
        self.rows = rows
        self._ends = np.cumsum([len(chunk) for chunk in self.chunks], dtype=np.int64)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Return the same texts; those that are not in Arrow arrays yet are copied."""
        if isinstance(texts, Texts):
            return texts
        return cls([batch.column(0) for batch in batches(texts, TEXTS_SCHEMA)])

    @classmethod
    def joined(cls, parts: Sequence[Sequence[str]]) -> Texts:
        """Concatenate several sequences."""
        sequences = [cls.of(part) for part in parts]
        if all(part.rows is None for part in sequences):
            return cls([chunk for part in sequences for chunk in part.chunks])
        starts = np.cumsum([0, *(part.stored for part in sequences)])
        rows = [part.numbers() + start for part, start in zip(sequences, starts[:-1], strict=True)]
        return cls([chunk for part in sequences for chunk in part.chunks], np.concatenate(rows))

    @property
    def stored(self) -> int:
        """Return the number of texts in the arrays."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def numbers(self) -> np.ndarray:
        """Return the number in the arrays of each text."""
        return np.arange(self.stored) if self.rows is None else self.rows

    def select(self, rows: np.ndarray) -> Texts:
        """Return some of the texts, by row number."""
        return Texts(self.chunks, rows if self.rows is None else self.rows[rows])

    def __len__(self) -> int:
        return self.stored if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        row = range(len(self))[index]  # as a list: from the end too, and an IndexError beyond it
        return self.take(np.array([row]))[0]

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks():
            yield from block.to_pylist()

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts({list(islice(self, 3))!r}, ... {len(self)} in all)"

    def take(self, rows: np.ndarray) -> list[str]:
        """Return some of the texts as a list, by row number."""
        stored = np.asarray(rows) if self.rows is None else self.rows[rows]
        texts: list[str] = self.gathered(stored).to_pylist()
        return texts

    def blocks(self) -> Iterator[pa.Array]:
        """Yield all texts in order, as string arrays of some thousands; for walks, see `forget_pages`."""
        walked = 0
        for block in self._blocks():
            yield block
            walked += block.nbytes
            if walked > RELEASE_BYTES:
                forget_pages()
                walked = 0
        forget_pages()

    def missing(self) -> np.ndarray:
        """Return True if a text is null, `(n,)` bool."""
        nulls = [np.asarray(chunk.is_null()) for chunk in self.chunks]
        stored = np.concatenate(nulls) if nulls else np.empty(0, dtype=bool)
        return stored if self.rows is None else stored[self.rows]

    def lengths(self) -> np.ndarray:
        """Return the characters of each text, `(n,)` int32."""
        parts = [pc.fill_null(pc.utf8_length(block), 0).to_numpy() for block in self.blocks()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def table(self, name: str) -> pa.Table:
        """Return the arrays as the only column of a table; `rows` is left to the caller."""
        return pa.table({name: pa.chunked_array(self.chunks, pa.string())})

    def _blocks(self) -> Iterator[pa.Array]:
        if self.rows is None:
            yield from self.chunks
            return
        for start in range(0, len(self.rows), ROWS_PER_READ):
            yield self.gathered(self.rows[start : start + ROWS_PER_READ])

    def gathered(self, stored: np.ndarray) -> pa.Array:
        """Return a string array of some texts, by their numbers in the arrays."""
        if not len(stored):
            return pa.array([], pa.string())
        of_chunk = np.searchsorted(self._ends, stored, side="right")
        order = np.argsort(of_chunk, kind="stable")
        numbers, firsts = np.unique(of_chunk[order], return_index=True)
        parts = []
        for turn, (number, places) in enumerate(
            zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True), 1
        ):
            start = self._ends[number] - len(self.chunks[number])
            parts.append(self.chunks[number].take(pa.array(stored[places] - start)))
            if turn % RELEASE_CHUNKS == 0:  # the kernel maps sixteen pages for each that is read
                forget_pages()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))


class Triples(Sequence[Triple]):
    """A sequence of triples in an Arrow table.

    Args:
        table: Columns as in `TRIPLES_SCHEMA`.
        key: Digest of the content, if the table is in a mapped file.
    """

    def __init__(self, table: pa.Table, key: str | None = None) -> None:
        self.table, self.key = table, key

    @classmethod
    def of(cls, triples: Iterable[Triple]) -> Triples:
        """Return the same triples; those that are not in a table yet are copied."""
        if isinstance(triples, Triples):
            return triples
        return cls(pa.Table.from_batches(batches(triples, TRIPLES_SCHEMA), TRIPLES_SCHEMA))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Triple: ...
    @overload
    def __getitem__(self, index: slice) -> Triples: ...
    def __getitem__(self, index: int | slice) -> Triple | Triples:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return next(iter(_triples(self.table.slice(rows, 1).to_batches()[0])))
        if rows.step == 1:
            return Triples(self.table.slice(rows.start, len(rows)))
        return Triples.of([self[row] for row in rows])

    def __iter__(self) -> Iterator[Triple]:
        for batch in self.batches():
            yield from _triples(batch)

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Triples({list(islice(self, 3))!r}, ... {len(self)} in all)"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; for walks, see `forget_pages`."""
        walked = 0
        for batch in self.table.to_batches():
            yield batch
            walked += batch.nbytes
            if walked > RELEASE_BYTES:
                forget_pages()
                walked = 0
        forget_pages()

    @cached_property
    def queries(self) -> Texts:
        """Return the query of each triple."""
        return Texts(self.table.column("query").chunks)

    @cached_property
    def instructions(self) -> Texts:
        """Return the instruction of each triple; empty where it has none."""
        return Texts(self.table.column("instruction").chunks)

    @cached_property
    def instructed(self) -> int:
        """Return the number of triples with an instruction."""
        return int(sum(pc.sum(pc.not_equal(c, "")).as_py() or 0 for c in self.instructions.chunks))

    @cached_property
    def documents(self) -> Texts:
        """Return documents of all triples: positives, then negatives of the first, those of the next, ..."""
        return Texts([chunk.flatten() for chunk in self.table.column("documents").chunks])

    @property
    def texts(self) -> Texts:
        """Return all texts: the query of the first triple, its documents, the query of the next, ..."""
        ends = np.cumsum(self.positives.astype(np.int64) + self.negatives)
        of_queries = ends + np.arange(len(self)) - (self.positives + self.negatives)
        rows = np.empty(len(self) + len(self.documents), dtype=np.int64)
        is_query = np.zeros(len(rows), dtype=bool)
        is_query[of_queries] = True
        rows[is_query] = np.arange(len(self))
        rows[~is_query] = np.arange(len(self.documents)) + len(self)
        return Texts([*self.queries.chunks, *self.documents.chunks], rows)

    @cached_property
    def positives(self) -> np.ndarray:
        """Return the number of positives of each triple, `(n,)` int32."""
        counts: np.ndarray = self.table.column("positives").to_numpy()
        return counts

    @cached_property
    def negatives(self) -> np.ndarray:
        """Return the number of negatives of each triple, `(n,)` int32."""
        lengths = pc.list_value_length(self.table.column("documents")).to_numpy()
        counts: np.ndarray = lengths.astype(np.int32) - self.positives
        return counts


def batches(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Record batches of triples (`TRIPLES_SCHEMA`) or texts (`TEXTS_SCHEMA`).

    Raises:
        DataError: A text is not valid Unicode, or not a text.
    """
    remaining = iter(rows)
    while block := list(islice(remaining, ROWS_PER_READ)):
        columns = _columns(block) if schema is TRIPLES_SCHEMA else [block]
        try:
            arrays = [pa.array(c, kind.type) for c, kind in zip(columns, schema, strict=True)]
        except UnicodeEncodeError as error:
            raise DataError(
                f"The text {error.object[:30]!r} is not valid Unicode ({error.reason})."
            ) from error
        except pa.ArrowException as error:
            raise DataError(
                f"Queries and documents should be texts; got something else ({error})."
            ) from error
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(block: Sequence[Triple]) -> list[list[Any]]:
    return [
        [triple.query for triple in block],
        [[*triple.positives, *triple.negatives] for triple in block],
        [len(triple.positives) for triple in block],
        [triple.instruction for triple in block],
        [triple.source for triple in block],
    ]


def _triples(batch: pa.RecordBatch) -> Iterator[Triple]:
    for query, documents, positives, instruction, source in zip(
        *(column.to_pylist() for column in batch.columns), strict=True
    ):
        yield Triple(query, tuple(documents[:positives]), tuple(documents[positives:]), instruction, source)


def _equal(first: Sequence[Any], second: object) -> bool:
    if not isinstance(second, Sequence) or isinstance(second, str) or len(first) != len(second):
        return False
    return all(one == other for one, other in zip(first, second, strict=True))
