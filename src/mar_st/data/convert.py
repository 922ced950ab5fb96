"""Conversion of checked rows to an Arrow table: in memory for small files, else in the cache."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from mar_st.data.arrow import forget_pages
from mar_st.data.cache import cache_key, cached_table, file_digests
from mar_st.data.records import row_line
from mar_st.data.sequences import TRIPLES_SCHEMA, Triples, batches

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mar_st.data.rows import Position


class Rows(Protocol):
    """Source of rows."""

    left_out: Counter[str]
    ignored: dict[str, str]
    position: Position

    @property
    def name(self) -> str:
        """Return the name of the data, for messages."""

    @property
    def path(self) -> Path | None:
        """File or folder; none of a data set of the Hub."""

    @property
    def files(self) -> list[Path]:
        """Return the files that are read."""

    @property
    def hub(self) -> Any:
        """Return the data set of the Hub."""

    @property
    def size(self) -> int:
        """Return the bytes that are read."""


def converted(
    rows: Rows,
    read: Callable[[], Iterable[Any]],
    schema: pa.Schema,
    *,
    settings: dict[str, Any],
    limit: int | None,
    draw: Callable[[int, int], list[int]],
    seed: int,
    large: int,
) -> tuple[pa.Table, dict[str, Any], str | None]:
    """Return the table of a data entry, the data kept about it, and its key in the cache.

    Args:
        rows: Source of the rows.
        read: Returns checked triples or texts.
        schema: Columns of the table.
        settings: Settings that change the result of `read`.
        limit: Maximum number of rows.
        draw: Draws row numbers, given the number of rows and the number to keep.
        seed: Seed of the draw.
        large: Size of the rows in bytes from which the table is a file in the cache.
    """
    if rows.size < large:
        conversion = _Conversion(rows, read, schema)
        table = pa.Table.from_batches(conversion.batches(), schema)
        if limit is not None and table.num_rows > limit:
            rows.left_out["beyond the limit"] += table.num_rows - limit
            table = table.take(pa.array(draw(table.num_rows, limit)))
        return table, conversion.about(), None
    content = file_digests(rows.files) if rows.path is not None else [rows.hub._fingerprint]
    key = cache_key(content=content, names=[file.name for file in rows.files], **settings)
    conversion = _Conversion(rows, read, schema, mapped=True)
    table, about = cached_table(key, schema, conversion.batches, conversion.about)
    if limit is not None and table.num_rows > limit:
        number, whole = table.num_rows, table
        key = cache_key(of=key, limit=limit, seed=seed)
        left_out = about["left_out"]
        left_out["beyond the limit"] = left_out.get("beyond the limit", 0) + number - limit
        picked = _Picked(whole, schema, lambda: draw(number, limit))
        table, of_picked = cached_table(key, schema, picked.batches, picked.about)
        about = {**about, **of_picked}
    return table, about, key


class _Conversion:
    """One pass over all rows; `about` is known after the last batch."""

    def __init__(
        self, rows: Rows, read: Callable[[], Iterable[Any]], schema: pa.Schema, *, mapped: bool = False
    ) -> None:
        self.rows, self.read, self.schema, self.mapped = rows, read, schema, mapped
        self.digest = hashlib.sha256()

    def batches(self) -> Iterator[pa.RecordBatch]:
        if not self.mapped:
            yield from batches(self.read(), self.schema)
            return
        with tqdm(total=self.rows.size, unit="B", unit_scale=True, desc=f"reading {self.rows.name}") as bar:
            for batch in batches(self._digested(), self.schema):
                yield batch
                bar.update(max(0, min(int(self.rows.position.done), self.rows.size) - bar.n))

    def about(self) -> dict[str, Any]:
        return {
            "left_out": dict(self.rows.left_out),
            "ignored": self.rows.ignored,
            "digest": self.digest.hexdigest() if self.mapped else None,
        }

    def _digested(self) -> Iterator[Any]:
        for row in self.read():
            self.digest.update(row_line(row))
            yield row


class _Picked:
    """Some rows of a mapped table."""

    def __init__(self, table: pa.Table, schema: pa.Schema, draw: Callable[[], list[int]]) -> None:
        self.table, self.schema, self.draw = table, schema, draw
        self.digest = hashlib.sha256()

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = np.array(self.draw(), dtype=np.int64)
        stored = self.table.to_batches()
        ends = np.cumsum([len(batch) for batch in stored])
        cuts = np.searchsorted(rows, ends)
        start = first = 0
        for number, (batch, end, cut) in enumerate(zip(stored, ends.tolist(), cuts.tolist(), strict=True)):
            picked = batch.take(pa.array(rows[start:cut] - first))
            start, first = cut, end
            for row in _rows_of(picked, self.schema):
                self.digest.update(row_line(row))
            if len(picked):
                yield picked
            if number % 64 == 63:
                forget_pages()
        forget_pages()

    def about(self) -> dict[str, Any]:
        return {"digest": self.digest.hexdigest()}


def _rows_of(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[Any]:
    if schema is TRIPLES_SCHEMA:
        yield from Triples(pa.Table.from_batches([batch]))
    else:
        yield from batch.column(0).to_pylist()
