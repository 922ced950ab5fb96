"""Texts and triples in Arrow tables: read like lists, as compact as their characters.

A list of Python objects costs several kilobytes per triple and is copied for every worker process. These hold
the texts once and make Python objects of the requested rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from mar_st.errors import MarError

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

#: Rows of a record batch.
ROWS_PER_READ = 8192


@dataclass(frozen=True)
class Triple:
    """A query with texts that answer it and texts that only seem to.

    Attributes:
        query: The bare query.
        positives: Documents that answer it.
        negatives: Hard negatives.
        instruction: Prefix of the query in training, instead of a prompt; includes separators.
        source: Origin of the row, if the row names it.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    instruction: str = ""
    source: str = ""


class Texts(Sequence[str]):
    """A sequence of texts in Arrow arrays.

    Args:
        chunks: String arrays, one after another.
        rows: Indices of the texts to include, counted over all arrays, in order; `None`: all.
    """

    def __init__(self, chunks: Iterable[pa.Array], rows: np.ndarray | None = None) -> None:
        self.chunks = [chunk for chunk in chunks if len(chunk)]
        self.rows = rows
        self._ends = np.cumsum([len(chunk) for chunk in self.chunks], dtype=np.int64)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Return the same texts; those that are not in Arrow arrays yet are copied."""
        if isinstance(texts, Texts):
            return texts
        return cls(batch.column(0) for batch in batches(texts, TEXTS_SCHEMA))

    @classmethod
    def joined(cls, parts: Iterable[Iterable[str]]) -> Texts:
        """Concatenate several sequences."""
        sequences = [cls.of(part) for part in parts]
        starts = np.cumsum([0, *(part._stored for part in sequences)])
        rows = [part.numbers() + start for part, start in zip(sequences, starts[:-1], strict=True)]
        return cls([chunk for part in sequences for chunk in part.chunks], np.concatenate(rows))

    @property
    def _stored(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def numbers(self) -> np.ndarray:
        """Return the number in the arrays of each text."""
        return np.arange(self._stored) if self.rows is None else self.rows

    def select(self, rows: np.ndarray) -> Texts:
        """Return some of the texts, by row number."""
        return Texts(self.chunks, rows if self.rows is None else self.rows[rows])

    def __len__(self) -> int:
        return self._stored if self.rows is None else len(self.rows)

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

    def take(self, rows: np.ndarray) -> list[str]:
        """Return some of the texts as a list, by row number."""
        texts: list[str] = self.gathered(rows).to_pylist()
        return texts

    def gathered(self, rows: np.ndarray) -> pa.Array:
        """Return some of the texts as an array, by row number."""
        if not len(rows):
            return pa.array([], pa.string())
        stored = rows if self.rows is None else self.rows[rows]
        of_chunk = np.searchsorted(self._ends, stored, side="right")
        order = np.argsort(of_chunk, kind="stable")
        numbers, firsts = np.unique(of_chunk[order], return_index=True)
        parts = []
        for number, own in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
            start = self._ends[number] - len(self.chunks[number])
            parts.append(self.chunks[number].take(pa.array(stored[own] - start)))
        return pa.concat_arrays(parts).take(pa.array(np.argsort(order)))

    def blocks(self) -> Iterator[pa.Array]:
        """Yield all texts in order, as string arrays of some thousands."""
        if self.rows is None:
            yield from self.chunks
            return
        for start in range(0, len(self.rows), ROWS_PER_READ):
            yield self.gathered(np.arange(start, min(start + ROWS_PER_READ, len(self.rows))))

    def lengths(self) -> np.ndarray:
        """Return the characters of each text, `(n,)` int32."""
        parts = [pc.utf8_length(block).to_numpy() for block in self.blocks()]
        return np.concatenate([np.empty(0, dtype=np.int32), *parts])

    def table(self, name: str) -> pa.Table:
        """Return the arrays as the only column of a table; `rows` is left to the caller."""
        return pa.table({name: pa.chunked_array(self.chunks, pa.string())})


class Triples(Sequence[Triple]):
    """A sequence of triples in an Arrow table.

    Args:
        table: Columns as in `TRIPLES_SCHEMA`.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

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
            return next(iter(Triples(self.table.slice(rows, 1))))
        return Triples(self.table.take(pa.array(rows, pa.int64())))

    def __iter__(self) -> Iterator[Triple]:
        for batch in self.table.to_batches():
            for query, documents, positives, instruction, source in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                own, others = tuple(documents[:positives]), tuple(documents[positives:])
                yield Triple(query, own, others, instruction, source)

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]

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
        return int(pc.sum(pc.not_equal(self.table.column("instruction"), "")).as_py() or 0)

    @cached_property
    def documents(self) -> Texts:
        """Return documents of all triples: positives, then negatives of the first, those of the next, ..."""
        return Texts(chunk.flatten() for chunk in self.table.column("documents").chunks)

    @cached_property
    def starts(self) -> np.ndarray:
        """Return the number of the first document of each triple, and the number of all, `(n + 1,)`."""
        return np.concatenate([[0], np.cumsum(self.positives.astype(np.int64) + self.negatives)])

    @cached_property
    def owners(self) -> np.ndarray:
        """Return the triple of each document."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def is_positive(self) -> np.ndarray:
        """Return True for the documents that are positives."""
        own: np.ndarray = np.arange(self.starts[-1]) - self.starts[self.owners] < self.positives[self.owners]
        return own

    @property
    def texts(self) -> Texts:
        """Return all texts: the query of the first triple, its documents, the query of the next, ..."""
        rows = np.insert(np.arange(self.starts[-1]) + len(self), self.starts[:-1], np.arange(len(self)))
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
    """Yield record batches of triples (`TRIPLES_SCHEMA`) or texts (`TEXTS_SCHEMA`)."""
    remaining = iter(rows)
    while block := list(islice(remaining, ROWS_PER_READ)):
        columns = [block]
        if schema is TRIPLES_SCHEMA:
            columns = [
                [triple.query for triple in block],
                [[*triple.positives, *triple.negatives] for triple in block],
                [len(triple.positives) for triple in block],
                [triple.instruction for triple in block],
                [triple.source for triple in block],
            ]
        try:
            arrays = [pa.array(c, kind.type) for c, kind in zip(columns, schema, strict=True)]
        except (UnicodeEncodeError, pa.ArrowException) as error:
            raise MarError(f"Queries and documents should be texts in valid Unicode ({error}).") from error
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def distinct(*parts: Sequence[str]) -> Texts:
    """Return the texts of some sequences, each once, in the order of their first occurrence."""
    return numbered(*parts)[0]


def numbered(*parts: Sequence[str]) -> tuple[Texts, list[np.ndarray]]:
    """Return the distinct texts of some sequences, and for each sequence the numbers of its texts."""
    texts = Texts.joined(parts)
    _, firsts, group = np.unique(digests(texts)[:, 0], return_index=True, return_inverse=True)
    places = np.argsort(np.argsort(firsts))[group]
    return texts.select(np.sort(firsts)), np.split(places, np.cumsum([len(part) for part in parts])[:-1])


def distinct_texts(triples: Sequence[Triple]) -> tuple[Texts, Texts]:
    """Return all distinct queries and all distinct documents of the data, in order of first occurrence."""
    table = Triples.of(triples)
    return distinct(table.queries), distinct(table.documents)


def digests(texts: Sequence[str]) -> np.ndarray:
    """Return 128 bits of each text, `(n, 2)` uint64: equal ones for equal texts."""
    digest = xxhash.xxh3_128_digest
    parts = [
        b"".join(digest(text) for text in block.cast(pa.binary()).to_pylist())
        for block in Texts.of(texts).blocks()
    ]
    return np.frombuffer(b"".join(parts), dtype=np.uint64).reshape(-1, 2)


def _equal(first: Sequence[Any], second: object) -> bool:
    if not isinstance(second, Sequence) or isinstance(second, str) or len(first) != len(second):
        return False
    return all(one == other for one, other in zip(first, second, strict=True))
