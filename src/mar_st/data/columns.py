"""Conversion of triples to the columns that a stage trains on."""

from __future__ import annotations

import logging
import math
import random
from array import array
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.data.arrow import ROWS_PER_READ, forget_pages
from mar_st.data.cache import cache_key, cached_table
from mar_st.data.records import DataError
from mar_st.data.sequences import Texts, Triples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from datasets import Dataset

    from mar_st.data.records import Triple

Row = TypeVar("Row")
Positives: TypeAlias = Literal["one", "all", "one-per-epoch"]

#: Document number of a missing negative, in rows whose triple has no negatives.
NO_TEXT = -1

logger = logging.getLogger(__name__)


def to_dataset(
    triples: Sequence[Triple],
    *,
    negatives: int,
    seed: int,
    positives: Positives = "all",
    weight: float = 1.0,
    missing_negatives: Literal["refuse", "batch"] = "refuse",
) -> Dataset:
    """Return one row per (query, positive) with `negatives` hard negatives each, drawn with a seed.

    The instruction of a triple is put before its query. For triples in a mapped file, the columns are also
    mapped: those of the triples themselves if nothing is drawn, else a file of the cache.

    Args:
        triples: The data.
        negatives: Hard negatives per row; drawn with replacement if a triple has fewer.
        seed: Seed of the draw.
        positives: One row for each positive of a query, or one row with a random positive; `one-per-epoch`
            draws the positive and the negatives again for every epoch.
        weight: Number of rows relative to the triples: 0.5 keeps a random half, 2 repeats every row, each
            time with its own positives and negatives.
        missing_negatives: Treatment of a triple without negatives: an error, or a row whose negatives are
            empty (null) until `TrainRows` fills them from the batch.

    Returns:
        A dataset with string columns `query`, `positive`, `negative_1` ... `negative_n`; with `one-per-epoch`
        a `RedrawnDataset`, whose texts `TrainRows` requests by epoch.

    Raises:
        DataError: Negatives are requested and a triple has none, or the weight is not above 0 and finite, or
            so small that it leaves no row.
    """
    if not 0 < weight < math.inf:
        raise DataError(f"The weight of data is above 0 and finite; got {weight}.")
    table = Triples.of(triples)
    if negatives and missing_negatives == "refuse":
        check_negatives(table, negatives)
    if positives == "one-per-epoch":
        return _redrawn(table, negatives, weight, seed)
    names = ["query", "positive", *(f"negative_{index + 1}" for index in range(negatives))]
    if not negatives and weight == 1 and _is_as_stored(table):
        parts = [table.queries.chunks, table.documents.chunks]
        columns = {name: pa.chunked_array(p, pa.string()) for name, p in zip(names, parts, strict=True)}
        return dataset_of(pa.table(columns))
    schema = pa.schema([(name, pa.string()) for name in names])

    def drawn() -> Iterator[pa.RecordBatch]:
        rows, documents = _drawn(table, negatives, positives, weight, random.Random(seed))
        check_share(len(table), weight, rows)
        return _batches(table, rows, documents, schema)

    if table.key is None:
        return dataset_of(pa.Table.from_batches(drawn(), schema))
    key = cache_key(triples=table.key, columns=names, positives=positives, weight=weight, seed=seed)
    return dataset_of(cached_table(key, schema, drawn, dict)[0])


def dataset_of(table: pa.Table, rows: np.ndarray | None = None) -> Dataset:
    """Return a dataset over an Arrow table, which is not copied.

    Args:
        table: The table, in memory or mapped.
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


def drawn_share(rows: Sequence[Row], weight: float, rng: random.Random) -> list[Row]:
    """Return rows in a share of their number: 0.5 draws half, 2.5 gives each row twice and a half."""
    return [rows[index] for index in drawn_rows(len(rows), weight, rng).tolist()]


def drawn_rows(number: int, weight: float, rng: random.Random) -> np.ndarray:
    """Row numbers in a share, see `drawn_share`.

    Raises:
        DataError: The share is above 0, but so small that it leaves none of the rows.
    """
    rows = _share(number, weight, rng)
    check_share(number, weight, rows)
    return rows


def check_share(number: int, weight: float, rows: np.ndarray) -> None:
    """Raise `DataError` if a weight above 0 leaves none of the rows."""
    if number and weight > 0 and not len(rows):
        raise DataError(
            f"A weight of {weight:g} leaves none of {number} rows. Give this data entry a weight of at least "
            f"{1 / number:.2g}, or leave it out."
        )


def _share(number: int, weight: float, rng: random.Random) -> np.ndarray:
    whole, rest = int(weight), weight - int(weight)
    drawn = sorted(rng.sample(range(number), round(rest * number))) if rest else []
    return np.concatenate([np.tile(np.arange(number), whole), np.array(drawn, dtype=np.int64)])


def with_negatives(triples: Sequence[Triple], name: str) -> Triples:
    """Return the triples that have negatives; a warning counts the others.

    NLI data hold premises that nothing contradicts; the other premises are still useful.

    Args:
        triples: The data.
        name: Name of the data, for messages.

    Raises:
        DataError: No triple has a negative.
    """
    table = Triples.of(triples)
    has_negatives = table.negatives > 0
    without = len(table) - int(has_negatives.sum())
    if not without:
        return table
    if without == len(table):
        raise DataError(
            f"data {name}: none of the {without} premises has a contradiction to take as a negative. Set "
            "'negatives: 0' for this data entry, or give rows with the label contradiction."
        )
    logger.warning(
        "data %s: %d of %d premises have no contradiction and are left out ('negatives: 0' keeps them).",
        name, without, len(table),
    )  # fmt: skip
    return Triples(table.table.filter(pa.array(has_negatives)))


def check_negatives(table: Triples, negatives: int) -> None:
    """Refuse triples without the hard negatives that are asked for.

    Raises:
        DataError: A triple has no negatives.
    """
    without = np.flatnonzero(table.negatives == 0)
    if len(without):
        raise DataError(
            f"The query {table[int(without[0])].query[:30]!r} has no negatives but {negatives} are asked "
            f"for; this holds for {len(without)} of {len(table)} triples. Set 'negatives: 0' or "
            "'missing_negatives: batch' for this data entry, mine some (mar mine), or select other rows "
            "('where')."
        )


def _drawn(
    table: Triples, negatives: int, positives: str, weight: float, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Triple of each row, `(rows,)`, and numbers of its documents in the data, `(rows, 1 + negatives)`."""
    counts = table.positives
    starts = np.concatenate([[0], np.cumsum(counts.astype(np.int64) + table.negatives)[:-1]])
    whole_rows, whole_documents = [], []
    remaining = weight
    while remaining > 0:
        if positives == "all" and not negatives:  # nothing to draw
            rows = np.repeat(np.arange(len(table)), counts)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            documents = (starts[rows] + within)[:, None]
        else:
            rows, documents = _draw(table, negatives, positives, rng)
            documents = np.where(documents == NO_TEXT, NO_TEXT, documents + starts[rows][:, None])
        if remaining < 1:
            share = _share(len(rows), remaining, rng)
            rows, documents = rows[share], documents[share]
        whole_rows.append(rows)
        whole_documents.append(documents)
        remaining -= 1
    return np.concatenate(whole_rows), np.concatenate(whole_documents)


def _draw(
    table: Triples, negatives: int, positives: str, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows once over: triple of each, and its documents counted from the first one of the triple."""
    rows, documents = array("q"), array("q")
    for row, (own, others) in enumerate(zip(table.positives.tolist(), table.negatives.tolist(), strict=True)):
        for positive in range(own) if positives == "all" else (rng.choice(range(own)),):
            if not others:
                chosen = []
            elif others >= negatives:
                chosen = rng.sample(range(others), negatives)
            else:
                chosen = rng.choices(range(others), k=negatives)
            rows.append(row)
            documents.append(positive)
            documents.extend([own + index for index in chosen] or [NO_TEXT] * negatives)
    return np.array(rows, dtype=np.int64), np.array(documents, dtype=np.int64).reshape(-1, 1 + negatives)


def _redrawn(table: Triples, negatives: int, weight: float, seed: int) -> Dataset:
    """Return the rows of triples whose documents are drawn every epoch; the triples are drawn once."""
    from mar_st.data.redrawn import Draws, RedrawnDataset  # lazy: datasets

    rows = drawn_rows(len(table), weight, random.Random(seed))
    return RedrawnDataset(Draws(table, _whole_queries(table), rows, negatives=negatives, seed=seed))


def _whole_queries(table: Triples) -> Texts:
    """Return the query of each triple, after its instruction."""
    if not table.instructed:
        return table.queries
    schema = pa.schema([("query", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        return _batches(table, np.arange(len(table)), np.empty((len(table), 0), dtype=np.int64), schema)

    if table.key is None:
        return Texts([batch.column(0) for batch in batches()])
    key = cache_key(triples=table.key, columns=schema.names)
    return Texts(cached_table(key, schema, batches, dict)[0].column("query").chunks)


def _is_as_stored(table: Triples) -> bool:
    """Return True if every triple has one document, so that its texts are a row without changes."""
    return not table.instructed and bool((table.positives == 1).all() and (table.negatives == 0).all())


def gathered(documents: Texts, rows: np.ndarray) -> pa.Array:
    """Return the documents by number, null for `NO_TEXT`."""
    missing = rows == NO_TEXT
    places = np.where(missing, 0, rows)
    texts = documents.gathered(places if documents.rows is None else documents.rows[places])
    return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), texts) if missing.any() else texts


def _batches(
    table: Triples, rows: np.ndarray, documents: np.ndarray, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    instructions = table.instructions
    for number, start in enumerate(range(0, len(rows), ROWS_PER_READ)):
        block = slice(start, start + ROWS_PER_READ)
        queries = table.queries.gathered(rows[block])
        if table.instructed:
            queries = pc.binary_join_element_wise(instructions.gathered(rows[block]), queries, "")
        of_columns = [gathered(table.documents, column) for column in documents[block].T]
        yield pa.RecordBatch.from_arrays([queries, *of_columns], schema=schema)
        if number % 64 == 63:
            forget_pages()
    forget_pages()
