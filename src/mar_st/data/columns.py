"""From triples to the columns that a stage trains on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, TypeVar

from mar_st.data.records import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from datasets import Dataset

    from mar_st.data.records import Triple

Row = TypeVar("Row")


def to_dataset(
    triples: list[Triple],
    *,
    negatives: int,
    seed: int,
    positives: Literal["one", "all"] = "all",
    weight: float = 1.0,
) -> Dataset:
    """One row per (query, positive) with `negatives` hard negatives each, drawn with a seed.

    The instruction of a triple is put before its query.

    Args:
        triples: The data.
        negatives: Hard negatives per row; drawn with replacement where a triple has fewer.
        seed: Seed of the draw.
        positives: A row for each positive of a query, or for one drawn from them.
        weight: Rows, relative to those of the triples: 0.5 keeps a drawn half, 2 gives every row twice, with
            positives and negatives drawn anew.

    Returns:
        A dataset with string columns `query`, `positive`, `negative_1` ... `negative_n`.

    Raises:
        DataError: Negatives are asked for and a triple has none.
    """
    from datasets import Dataset

    without = [triple.query for triple in triples if not triple.negatives] if negatives else []
    if without:
        raise DataError(
            f"The query {without[0][:30]!r} has no negatives but {negatives} are asked for; this holds for "
            f"{len(without)} of {len(triples)} triples. Set 'negatives: 0' for this data entry, mine some "
            "(mar mine), or select other rows ('where')."
        )
    rng = random.Random(seed)
    names = ["query", "positive", *(f"negative_{index + 1}" for index in range(negatives))]
    rows: list[tuple[str, ...]] = []
    left = weight
    while left > 0:
        drawn = [row for triple in triples for row in _drawn(triple, negatives, positives, rng)]
        rows += drawn_share(drawn, min(left, 1.0), rng)
        left -= 1
    return Dataset.from_dict({name: [row[index] for row in rows] for index, name in enumerate(names)})


def drawn_share(rows: Sequence[Row], weight: float, rng: random.Random) -> list[Row]:
    """Rows in a share relative to their number: 0.5 keeps a drawn half, 2.5 gives two of each and a half."""
    whole, rest = int(weight), weight - int(weight)
    drawn = sorted(rng.sample(range(len(rows)), round(rest * len(rows)))) if rest else []
    return [*list(rows) * whole, *(rows[index] for index in drawn)]


def _drawn(triple: Triple, negatives: int, positives: str, rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Rows of one triple."""
    query = triple.instruction + triple.query
    kept = triple.positives if positives == "all" else (rng.choice(triple.positives),)
    for positive in kept:
        if len(triple.negatives) >= negatives:
            found = rng.sample(triple.negatives, negatives)
        else:
            found = rng.choices(triple.negatives, k=negatives)
        yield (query, positive, *found)


def distinct_texts(triples: list[Triple]) -> tuple[list[str], list[str]]:
    """All distinct queries and all distinct documents of the data, in order of first occurrence."""
    queries = list(dict.fromkeys(triple.query for triple in triples))
    documents = list(dict.fromkeys(text for t in triples for text in (*t.positives, *t.negatives)))
    return queries, documents
