"""Conversion of triples to the columns that a stage trains on, as data sets of `datasets`."""

from __future__ import annotations

import logging
import random
from array import array
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.data.sequences import ROWS_PER_READ, Texts, Triple, Triples
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from datasets import Dataset


Positives: TypeAlias = Literal["one", "all"]

logger = logging.getLogger(__name__)


def to_dataset(
    triples: Sequence[Triple],
    *,
    negatives: int,
    seed: int,
    positives: Positives = "all",
    weight: float = 1.0,
    name: str = "rows",
) -> Dataset:
    """Return one row per (query, positive) with `negatives` hard negatives each, drawn with a seed.

    The instruction of a triple is put before its query.

    Args:
        triples: The data. If negatives are asked for, those without any are left out, see `with_negatives`.
        negatives: Hard negatives per row; drawn with replacement if a triple has fewer.
        seed: Seed of the draw.
        positives: One row for each positive of a query, or one row with a random positive.
        weight: Number of rows relative to the triples: 0.5 keeps a random half, 2 repeats every row, each
            time with its own positives and negatives.
        name: Name of the data, for messages.

    Returns:
        A dataset with string columns `query`, `positive`, `negative_1` ... `negative_n`.

    Raises:
        MarError: Negatives are requested and no triple has one.
    """
    table = with_negatives(triples, name) if negatives else Triples.of(triples)
    columns = ("query", "positive", *(f"negative_{n + 1}" for n in range(negatives)))
    schema = pa.schema([(column, pa.string()) for column in columns])
    rows, documents = _drawn(table, negatives, positives, weight, random.Random(seed))
    return dataset_of(pa.Table.from_batches(_batches(table, rows, documents, schema), schema))


def dataset_of(table: pa.Table, rows: np.ndarray | None = None) -> Dataset:
    """Return a dataset over an Arrow table, which is not copied.

    Args:
        table: The table.
        rows: Indices of the rows to include, in order; `None`: all.
    """
    from datasets import Dataset  # lazy: datasets
    from datasets.fingerprint import generate_random_fingerprint  # lazy: datasets
    from datasets.table import InMemoryTable  # lazy: datasets

    indices = None
    if rows is not None:
        indices = InMemoryTable(pa.table({"indices": pa.array(rows, pa.uint64())}))
    # The fingerprint that `datasets` makes by itself reads the whole table.
    return Dataset(InMemoryTable(table), indices_table=indices, fingerprint=generate_random_fingerprint())


def column_texts(dataset: Dataset, column: str) -> Texts:
    """Return the texts of a column of a dataset, which are not copied."""
    chunks = [chunk.cast(pa.string()) for chunk in dataset.data.column(column).chunks]
    indices = dataset._indices
    return Texts(chunks, None if indices is None else indices.column(0).to_numpy().astype(np.int64))


def drawn_rows(number: int, weight: float, rng: random.Random) -> np.ndarray:
    """Return row numbers in a share: 0.5 draws half, 2.5 gives each row twice and a half."""
    whole, rest = int(weight), weight - int(weight)
    drawn = sorted(rng.sample(range(number), round(rest * number))) if rest else []
    return np.concatenate([np.tile(np.arange(number), whole), np.array(drawn, dtype=np.int64)])


def with_negatives(triples: Sequence[Triple], name: str) -> Triples:
    """Return the triples that have hard negatives; a warning counts the others.

    Args:
        triples: The data.
        name: Name of the data, for messages.

    Raises:
        MarError: No triple has a negative.
    """
    table = Triples.of(triples)
    has_negatives = table.negatives > 0
    without = len(table) - int(has_negatives.sum())
    if not without:
        return table
    if without == len(table):
        raise MarError(
            f"data {name}: none of the {without} queries has a hard negative (in NLI data: a contradiction). "
            "Set 'negatives: 0' for this data entry, mine some (mar mine), or select other rows ('where')."
        )
    logger.warning(
        "data %s: %d of %d queries have no hard negative and are left out ('negatives: 0' keeps them).",
        name, without, len(table),
    )  # fmt: skip
    return Triples(table.table.filter(pa.array(has_negatives)))


def _drawn(
    table: Triples, negatives: int, positives: str, weight: float, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Triple of each row, `(rows,)`, and numbers of its documents in the data, `(rows, 1 + negatives)`."""
    parts: list[tuple[Any, Any]] = []
    remaining = weight
    while remaining > 0:
        if positives == "all" and not negatives:  # nothing to draw
            documents = np.flatnonzero(table.is_positive)[:, None]
            rows = table.owners[documents[:, 0]]
        else:
            rows, documents = _draw(table, negatives, positives, rng)
        if remaining < 1:
            share = drawn_rows(len(rows), remaining, rng)
            rows, documents = rows[share], documents[share]
        parts.append((rows, documents))
        remaining -= 1
    of_rows, of_documents = zip(*parts, strict=True)
    return np.concatenate(of_rows), np.concatenate(of_documents)


def _draw(
    table: Triples, negatives: int, positives: str, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows once over: triple of each, and its documents."""
    rows, documents = array("q"), array("q")
    counts = zip(table.starts.tolist(), table.positives.tolist(), table.negatives.tolist(), strict=False)
    for row, (start, own, others) in enumerate(counts):
        for positive in range(own) if positives == "all" else (rng.choice(range(own)),):
            draw = rng.sample if others >= negatives else rng.choices
            chosen = draw(range(others), k=negatives) if negatives else []
            rows.append(row)
            documents.append(start + positive)
            documents.extend([start + own + index for index in chosen])
    return np.array(rows, dtype=np.int64), np.array(documents, dtype=np.int64).reshape(-1, 1 + negatives)


def _batches(
    table: Triples, rows: np.ndarray, documents: np.ndarray, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), ROWS_PER_READ):
        block = slice(start, start + ROWS_PER_READ)
        parts = [table.instructions.gathered(rows[block]), table.queries.gathered(rows[block])]
        queries = pc.binary_join_element_wise(*parts, "")
        of_columns = [table.documents.gathered(column) for column in documents[block].T]
        yield pa.RecordBatch.from_arrays([queries, *of_columns], schema=schema)
