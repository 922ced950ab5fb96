"""Datasets whose labels are stored vectors or scores, read when a batch is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from mar_st.data import column_texts, dataset_of, numbered
from mar_st.data.redrawn import RedrawnDataset
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from datasets import Dataset

    from mar_st.recipes.schema import Side
    from mar_st.teachers.vectors import Vectors

__all__ = ["labelled", "with_scores", "with_vectors"]


def labelled(
    table: pa.Table, places: np.ndarray, vectors: Vectors, rows: np.ndarray | None = None
) -> Dataset:
    """Return a dataset whose `label` column is read from stored vectors when a batch is made.

    Args:
        table: Columns of texts.
        places: For each row of the table, the row or rows of its vectors.
        vectors: The vectors.
        rows: Rows of the table that are in the dataset, in order; `None`: all.

    Returns:
        A dataset with the first column and a `label`: `(dim,)` per row, or `(number, dim)` for several. Rows
        do not contain the other columns, but samplers can see them.
    """
    dataset = dataset_of(table.append_column("label", _label(places)), rows)
    return dataset.with_transform(_Labels(table.column_names[0], vectors))


def with_vectors(
    dataset: Dataset,
    roles: Mapping[str, Side],
    vectors_of: Callable[[Sequence[str], Side], Vectors],
    *,
    read: Sequence[str] | None = None,
) -> Dataset:
    """Return the columns of a dataset with a `label` that holds the stored vector of each of its texts.

    Args:
        dataset: Columns of texts.
        roles: Whether a column holds queries or documents.
        vectors_of: Returns the vectors of distinct texts in a role; called once for each role.
        read: Columns whose texts a batch holds; default all. Samplers also see the others.

    Returns:
        The columns of `read`, and `label`: `(columns, width)` float32 per row, in the order of all columns.
        If documents are drawn for every epoch, the label follows the draw.

    Raises:
        MarError: A row lacks a negative, so there is no vector to learn from.
    """
    _check_complete(dataset)
    names = dataset.column_names
    draws = dataset.draws if isinstance(dataset, RedrawnDataset) else None
    if draws is None:
        parts = {name: column_texts(dataset, name) for name in names}
    else:
        parts = {"query": draws.queries, "positive": draws.documents}
    stores: dict[Side, Vectors] = {}
    rows: dict[str, np.ndarray] = {}
    for role in dict.fromkeys(roles[name] for name in parts):
        of_role = [name for name in parts if roles[name] == role]
        texts, places = numbered(*(parts[name] for name in of_role))
        stores[role] = vectors_of(texts, role)
        rows |= zip(of_role, places, strict=True)
    sides = [roles[name] for name in names]
    if draws is not None:
        drawn = _DrawnVectors(rows["query"], rows["positive"], _Vectors(sides, stores))
        return RedrawnDataset(draws, label=drawn, read=read)
    label = _label(np.stack([rows[name] for name in names], axis=1))
    with_rows = dataset_of(_table(dataset).append_column("label", label))
    handed = tuple(names if read is None else read)
    return with_rows.with_transform(_ColumnVectors(handed, _Vectors(sides, stores)))


def with_scores(dataset: Dataset, scores_of: Callable[[Sequence[tuple[str, str]]], Vectors]) -> Dataset:
    """Return the columns of a dataset with a `label` that holds the stored scores of its pairs.

    Args:
        dataset: Columns `query`, `positive`, then any number of negatives.
        scores_of: Returns the scores of (query, document) pairs, as vectors of width 1.

    Returns:
        The columns, and `label`: `(1 + negatives,)` float32 per row, in the order of the columns. If
        documents are drawn for every epoch, the label follows the draw.

    Raises:
        MarError: A row lacks a negative, so there is no score to learn from.
    """
    _check_complete(dataset)
    if isinstance(dataset, RedrawnDataset):
        draws = dataset.draws
        scores = scores_of(_Pairs([draws.queries.select(draws.owners), draws.documents]))
        return RedrawnDataset(draws, label=_DrawnScores(scores))
    pairs = _Pairs([column_texts(dataset, name) for name in dataset.column_names])
    label = _label(np.arange(len(pairs)).reshape(len(dataset), len(dataset.column_names) - 1))
    with_rows = dataset_of(_table(dataset).append_column("label", label))
    return with_rows.with_transform(_Scores(tuple(dataset.column_names), scores_of(pairs)))


def _check_complete(dataset: Dataset) -> None:
    if isinstance(dataset, RedrawnDataset):
        complete = dataset.draws.complete
    else:
        complete = not any(column_texts(dataset, name).missing().any() for name in dataset.column_names)
    if not complete:
        raise MarError(
            "Rows without negatives ('missing_negatives: batch') have no stored vectors or scores to learn "
            "from. Mine negatives for them (mar mine), or set 'negatives: 0'."
        )


class _Pairs(Sequence[tuple[str, str]]):
    """The first text of each row with each of the others, read when asked for."""

    def __init__(self, columns: Sequence[Sequence[str]]) -> None:
        self._queries, *self._documents = columns

    def __len__(self) -> int:
        return len(self._queries) * len(self._documents)

    def __getitem__(self, index: Any) -> Any:
        row, column = divmod(index, len(self._documents))
        return self._queries[row], self._documents[column][row]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for query, *documents in zip(self._queries, *self._documents, strict=True):
            for document in documents:
                yield query, document


def _table(dataset: Dataset) -> pa.Table:
    """Return the rows of a dataset in their order; a dataset that was selected or shuffled is copied."""
    table, indices = dataset.data.table, dataset._indices
    return table if indices is None else table.take(indices.column(0))


def _label(places: np.ndarray) -> pa.Array:
    """Return rows of vectors, `(rows,)` or `(rows, number)`, as a column of a table."""
    flat = pa.array(places.reshape(-1).astype(np.int32))
    return flat if places.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, places.shape[1])


@dataclass(frozen=True)
class _Scores:
    columns: tuple[str, ...]
    scores: Vectors

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = np.asarray(batch["label"])
        label = torch.from_numpy(self.scores[rows.reshape(-1)].reshape(rows.shape))
        return {**{name: batch[name] for name in self.columns}, "label": list(label)}


@dataclass(frozen=True)
class _Labels:
    column: str
    vectors: Vectors

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = torch.as_tensor(batch["label"])
        vectors = torch.from_numpy(self.vectors[rows.reshape(-1).numpy()])
        return {self.column: batch[self.column], "label": list(vectors.reshape(*rows.shape, -1))}


@dataclass(frozen=True)
class _Vectors:
    roles: list[Side]
    stores: dict[Side, Vectors]

    def __call__(self, places: np.ndarray) -> list[torch.Tensor]:
        """Return the vectors of some rows' texts, by the position of each text in the store of its role."""
        vectors = [self.stores[role][places[:, index]] for index, role in enumerate(self.roles)]
        return list(torch.from_numpy(np.stack(vectors, axis=1)))


@dataclass(frozen=True)
class _ColumnVectors:
    texts: tuple[str, ...]
    vectors: _Vectors

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        label = self.vectors(np.asarray(batch["label"]))
        return {**{name: batch[name] for name in self.texts}, "label": label}


@dataclass(frozen=True)
class _DrawnVectors:
    queries: np.ndarray
    documents: np.ndarray
    vectors: _Vectors

    def __call__(self, triples: np.ndarray, documents: np.ndarray) -> list[torch.Tensor]:
        places = [self.queries[triples][:, None], self.documents[documents]]
        return self.vectors(np.concatenate(places, axis=1))


@dataclass(frozen=True)
class _DrawnScores:
    scores: Vectors

    def __call__(self, triples: np.ndarray, documents: np.ndarray) -> list[torch.Tensor]:
        del triples  # a document belongs to one triple
        return list(torch.from_numpy(self.scores[documents.reshape(-1)].reshape(documents.shape)))
