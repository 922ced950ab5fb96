"""Conversion of triples to the columns that a stage trains on."""

from __future__ import annotations

import logging
import math
import random
from array import array
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mar_st.data.sequences import NO_TEXT, ROWS_PER_READ, Triples
from mar_st.data.tables import dataset_of, table_of
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from datasets import Dataset

    from mar_st.data.sequences import Triple

Positives: TypeAlias = Literal["one", "all"]

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

    The instruction of a triple is put before its query. For triples in a mapped file, the columns are in a
    mapped file, too.

    Args:
        triples: The data.
        negatives: Hard negatives per row; drawn with replacement if a triple has fewer.
        seed: Seed of the draw.
        positives: One row for each positive of a query, or one row with a random positive.
        weight: Number of rows relative to the triples: 0.5 keeps a random half, 2 repeats every row, each
            time with its own positives and negatives.
        missing_negatives: Treatment of a triple without negatives: an error, or a row whose negatives are
            empty (null) until `TrainRows` fills them from the batch.

    Returns:
        A dataset with string columns `query`, `positive`, `negative_1` ... `negative_n`.

    Raises:
        MarError: Negatives are requested and a triple has none, or the weight is not above 0 and finite, or
            so small that it leaves no row.
    """
    if not 0 < weight < math.inf:
        raise MarError(f"The weight of data is above 0 and finite; got {weight}.")
    table = Triples.of(triples)
    if negatives and missing_negatives == "refuse":
        check_negatives(table, negatives)
    schema = pa.schema(
        [
            (name, pa.string())
            for name in ("query", "positive", *(f"negative_{n + 1}" for n in range(negatives)))
        ]
    )

    def drawn() -> Iterator[pa.RecordBatch]:
        rows, documents = _drawn(table, negatives, positives, weight, random.Random(seed))
        check_share(len(table), weight, rows)
        return _batches(table, rows, documents, schema)

    key = table.key and f"{table.key}-{negatives}-{positives}-{weight}-{seed}"
    return dataset_of(table_of(drawn, schema, key))


def drawn_rows(number: int, weight: float, rng: random.Random) -> np.ndarray:
    """Return row numbers in a share: 0.5 draws half, 2.5 gives each row twice and a half.

    Raises:
        MarError: The share is above 0, but so small that it leaves none of the rows.
    """
    rows = _share(number, weight, rng)
    check_share(number, weight, rows)
    return rows


def check_share(number: int, weight: float, rows: np.ndarray) -> None:
    """Raise `MarError` if a weight above 0 leaves none of the rows."""
    if number and weight > 0 and not len(rows):
        raise MarError(
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
        MarError: No triple has a negative.
    """
    table = Triples.of(triples)
    has_negatives = table.negatives > 0
    without = len(table) - int(has_negatives.sum())
    if not without:
        return table
    if without == len(table):
        raise MarError(
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
        MarError: A triple has no negatives.
    """
    without = np.flatnonzero(table.negatives == 0)
    if len(without):
        raise MarError(
            f"The query {table[int(without[0])].query[:30]!r} has no negatives but {negatives} are asked "
            f"for; this holds for {len(without)} of {len(table)} triples. Set 'negatives: 0' or "
            "'missing_negatives: batch' for this data entry, mine some (mar mine), or select other rows "
            "('where')."
        )


def whole_queries(table: Triples, rows: np.ndarray) -> pa.Array:
    """Return the queries of some triples, each after its instruction."""
    queries = table.queries.gathered(rows)
    if not table.instructed:
        return queries
    return pc.binary_join_element_wise(table.instructions.gathered(rows), queries, "")


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
            share = _share(len(rows), remaining, rng)
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
            chosen: list[int] = []
            if others:
                draw = rng.sample if others >= negatives else rng.choices
                chosen = draw(range(others), k=negatives)
            rows.append(row)
            documents.append(start + positive)
            documents.extend([start + own + index for index in chosen] or [NO_TEXT] * negatives)
    return np.array(rows, dtype=np.int64), np.array(documents, dtype=np.int64).reshape(-1, 1 + negatives)


def _batches(
    table: Triples, rows: np.ndarray, documents: np.ndarray, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), ROWS_PER_READ):
        block = slice(start, start + ROWS_PER_READ)
        of_columns = [table.documents.gathered(column) for column in documents[block].T]
        yield pa.RecordBatch.from_arrays([whole_queries(table, rows[block]), *of_columns], schema=schema)
