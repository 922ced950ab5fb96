"""Datasets whose labels are stored vectors, read when a batch is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from datasets import Dataset

    from mar_st.schema import Side
    from mar_st.store import Vectors

__all__ = ["labelled", "with_vectors"]


def labelled(columns: Mapping[str, list[str]], rows: Sequence[Any], vectors: Vectors) -> Dataset:
    """A dataset whose `label` column is read from stored vectors when a batch is made.

    Args:
        columns: Columns of texts.
        rows: For each row of the dataset the row of its vector, or several of them.
        vectors: The vectors.

    Returns:
        A dataset with the first column and a `label`: `(dim,)` per row, or `(number, dim)` for several. The
        other columns are not handed out, but samplers can see them.
    """
    from datasets import Dataset

    dataset = Dataset.from_dict({**columns, "label": list(rows)})
    return dataset.with_transform(_Labels(next(iter(columns)), vectors))


def with_vectors(
    dataset: Dataset, roles: Mapping[str, Side], vectors_of: Callable[[Sequence[str], Side], Vectors]
) -> Dataset:
    """The columns of a dataset with a `label` that holds the stored vector of each of its texts.

    Args:
        dataset: Columns of texts.
        roles: Whether a column holds queries or documents.
        vectors_of: Gives the vectors of distinct texts in a role; it is asked once for each role.

    Returns:
        The columns, and `label`: `(columns, width)` float32 per row, in the order of the columns.
    """
    names = dataset.column_names
    stores: dict[Side, Vectors] = {}
    rows: dict[str, list[int]] = {}
    for role in dict.fromkeys(roles[name] for name in names):
        columns = {name: dataset[name][:] for name in names if roles[name] == role}
        texts = list(dict.fromkeys(text for column in columns.values() for text in column))
        position = {text: row for row, text in enumerate(texts)}
        stores[role] = vectors_of(texts, role)
        rows |= {name: [position[text] for text in column] for name, column in columns.items()}
    labels = np.stack([rows[name] for name in names], axis=1)
    with_rows = dataset.add_column("label", list(labels))
    return with_rows.with_transform(_ColumnVectors([(name, roles[name]) for name in names], stores))


@dataclass(frozen=True)
class _Labels:
    column: str
    vectors: Vectors

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = torch.as_tensor(batch["label"])
        found = torch.from_numpy(self.vectors[rows.reshape(-1).numpy()])
        return {self.column: batch[self.column], "label": list(found.reshape(*rows.shape, -1))}


@dataclass(frozen=True)
class _ColumnVectors:
    columns: list[tuple[str, Side]]
    stores: dict[Side, Vectors]

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = np.asarray(batch["label"])
        vectors = [self.stores[role][rows[:, index]] for index, (_, role) in enumerate(self.columns)]
        label = torch.from_numpy(np.stack(vectors, axis=1))
        return {**{name: batch[name] for name, _ in self.columns}, "label": list(label)}
