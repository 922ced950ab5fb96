"""Columns whose documents are drawn again for every epoch, from texts that are stored once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from datasets.table import InMemoryTable

from mar_st.data.columns import whole_queries
from mar_st.data.sequences import NO_TEXT, ROWS_PER_READ, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.data.sequences import Triples

__all__ = ["Draws", "RedrawnDataset"]


class Draws:
    """Documents of each row in an epoch.

    The positives of a triple take turns, and so do its hard negatives, in an order drawn with the seed (as in
    Tevatron). So the draw depends only on seed, epoch and row, each of `p` positives is drawn once in `p`
    epochs, and each of `n` negatives is met within `ceil(n / negatives)`. A triple with fewer negatives than
    a row holds gives some of them several times; one without any gives `NO_TEXT`.

    Args:
        table: The data.
        rows: Index of each row's triple, `(rows,)`; a triple with several rows takes a turn in each.
        negatives: Hard negatives per row.
        seed: Seed of the order.

    Attributes:
        queries: The query of each triple, after its instruction.
        documents: The documents that rows may hold.
    """

    def __init__(self, table: Triples, rows: np.ndarray, *, negatives: int, seed: int) -> None:
        self.negatives = negatives
        self.queries = table.queries
        if table.instructed:
            blocks = np.array_split(np.arange(len(table)), len(table) // ROWS_PER_READ + 1)
            self.queries = Texts(whole_queries(table, block) for block in blocks)
        self._rows = rows
        self._turns = np.bincount(rows, minlength=len(table)).astype(np.int32)
        self._turn = _occurrences(rows).astype(np.int32)
        # Positives and negatives of the first triple, of the second, ...: the documents in their order.
        stored = np.stack([table.positives, table.negatives], axis=1)
        used = np.stack([self._turns > 0, (self._turns > 0) & (negatives > 0)], axis=1)
        is_used = np.repeat(used.ravel(), stored.ravel())
        self.documents = table.documents if is_used.all() else table.documents.select(np.flatnonzero(is_used))
        self._sizes = np.where(used, stored, 0).astype(np.int32)
        self._starts = (np.cumsum(self._sizes, dtype=np.int64) - self._sizes.ravel()).reshape(-1, 2)
        group = np.repeat(np.arange(self._sizes.size), self._sizes.ravel())
        self._order = np.lexsort((np.random.default_rng(seed).random(len(group)), group))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def owners(self) -> np.ndarray:
        """Return the triple of each of `documents`."""
        return np.repeat(np.arange(len(self._sizes)), self._sizes.sum(axis=1))

    @property
    def complete(self) -> bool:
        """Return True if no row lacks a negative."""
        return not self.negatives or bool((self._sizes[self._turns > 0, 1] > 0).all())

    def drawn(self, epoch: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return which triple and which documents some rows hold in an epoch.

        Args:
            epoch: Number of the epoch.
            rows: Row numbers; default all.

        Returns:
            The triple of each row, `(rows,)`, and its positive and negatives as indices into `documents`,
            `(rows, 1 + negatives)` int64.
        """
        own, triples = (self._turn, self._rows) if rows is None else (self._turn[rows], self._rows[rows])
        turn = epoch * self._turns[triples].astype(np.int64) + own
        positives = self._taken(triples, 0, turn[:, None])
        places = turn[:, None] * self.negatives + np.arange(self.negatives)
        return triples, np.concatenate([positives, self._taken(triples, 1, places)], axis=1)

    def _taken(self, triples: np.ndarray, kind: int, places: np.ndarray) -> np.ndarray:
        """Return the documents of a kind for these positions, which are counted without wrapping."""
        sizes = self._sizes[triples, kind][:, None]
        within = self._starts[triples, kind][:, None] + places % np.maximum(sizes, 1)
        missing = np.broadcast_to(sizes == 0, within.shape)
        return np.where(missing, NO_TEXT, self._order[np.where(missing, 0, within)])


class RedrawnDataset(Dataset):  # type: ignore[misc]  # datasets has no types
    """A dataset whose texts depend on the epoch.

    Its own table defines names, types and the number of rows, and holds only nulls; `content` gives the
    texts.

    Args:
        draws: Documents of each row in an epoch.
        label: Computes the column `label` of a batch from the result of `Draws.drawn`; default: no column.
        read: Text columns that a batch holds; default all.
    """

    def __init__(
        self,
        draws: Draws,
        *,
        label: Callable[[np.ndarray, np.ndarray], Sequence[Any]] | None = None,
        read: Sequence[str] | None = None,
    ) -> None:
        self.draws = draws
        self.texts = ["query", "positive", *(f"negative_{n + 1}" for n in range(draws.negatives))]
        self._label, self._read = label, tuple(self.texts if read is None else read)
        columns = {name: _nulls(len(draws), pa.string()) for name in self.texts}
        if label is not None:
            columns["label"] = _nulls(len(draws), pa.int32())
        table = InMemoryTable(pa.table(columns))
        super().__init__(table, fingerprint=generate_random_fingerprint())

    def content(self, rows: np.ndarray, epoch: int) -> dict[str, Sequence[Any]]:
        """Return the columns of some rows in an epoch; the negatives of a triple without any are `None`."""
        triples, documents = self.draws.drawn(epoch, rows)
        columns: dict[str, Sequence[Any]] = {}
        for name, numbers in zip(self.texts[1:], documents.T, strict=True):
            if name in self._read:
                columns[name] = self.draws.documents.take(numbers)
        if "query" in self._read:
            columns = {"query": self.draws.queries.take(triples), **columns}
        if self._label is not None:
            columns["label"] = self._label(triples, documents)
        return columns

    def values(
        self, epoch: int, of_queries: np.ndarray, of_documents: np.ndarray, missing: Any = None
    ) -> np.ndarray:
        """Return a value for each text of an epoch, `(rows, 2 + negatives)`.

        Args:
            epoch: Number of the epoch.
            of_queries: Value of each query in `draws.queries`.
            of_documents: Value of each document in `draws.documents`.
            missing: Value of a missing negative; default the value of the row's query.
        """
        triples, documents = self.draws.drawn(epoch)
        own = of_queries[triples][:, None]
        absent = own if missing is None else np.full_like(own, missing)
        return np.concatenate([own, np.where(documents == NO_TEXT, absent, of_documents[documents])], axis=1)


def _occurrences(numbers: np.ndarray) -> np.ndarray:
    """Return how often each number occurred before, `(n,)`."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    places = np.arange(len(order))
    counts = np.empty_like(places)
    counts[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return counts


def _nulls(number: int, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of nulls; its chunks share their memory."""
    block = pa.nulls(min(ROWS_PER_READ, number), kind)
    rest = block.slice(0, number % ROWS_PER_READ) if number >= ROWS_PER_READ else block
    return pa.chunked_array([block] * (number // ROWS_PER_READ) + [rest], kind)
