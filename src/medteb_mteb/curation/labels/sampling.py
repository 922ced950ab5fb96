"""Sampling of pairs for experts: a stratified sample of the labels of an edition.

Strata are positives, negatives and disputed pairs, by type of query if there is one. Every stratum gets a
minimum, and the rest of the budget is shared by the square root of the sizes (power allocation, M. Bankier,
The American Statistician 42, 1988). So the negatives, which are nearly all of the pairs, do not use up the
budget, and positives among them are still found.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.sheet import SheetPair, write_sheet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.folders.retrieval import RetrievalData

__all__ = ["MIN_PAIRS_PER_STRATUM", "Stratum", "allocate", "draw", "plan_sheet"]

#: Minimum number of pairs per stratum.
MIN_PAIRS_PER_STRATUM = 30
#: Type of queries without a type.
NO_TYPE = "not stated"


def allocate(sizes: Mapping[str, int], budget: int, minimum: int = MIN_PAIRS_PER_STRATUM) -> dict[str, int]:
    """Return the number of pairs to draw from each stratum.

    Args:
        sizes: Number of pairs of each stratum.
        budget: Number of pairs to draw in total; if there are fewer, all are drawn.
        minimum: Minimum number of pairs of each stratum; smaller strata are drawn completely.

    Raises:
        BuildError: The budget is below the minimum of all strata.
    """
    least = {name: min(size, minimum) for name, size in sizes.items()}
    if sum(least.values()) > budget:
        raise BuildError(
            f"{len(sizes)} strata with at least {minimum} pairs each take {sum(least.values())} pairs, and "
            f"the budget is {budget}. Raise --budget, lower --minimum, or leave out --by."
        )
    budget = min(budget, sum(sizes.values()))
    low, high = 0.0, float(sum(sizes.values()) + 1)
    for _ in range(200):  # find the scale at which the bounded shares use up the budget
        scale = (low + high) / 2
        if sum(_cut(scale, sizes[name], least[name]) for name in sizes) < budget:
            low = scale
        else:
            high = scale
    shares = {name: _cut(low, size, least[name]) for name, size in sizes.items()}
    numbers = {name: int(share) for name, share in shares.items()}
    by_rest = sorted(sizes, key=lambda name: (numbers[name] - shares[name], name))
    while sum(numbers.values()) < budget:
        for name in by_rest:
            if numbers[name] < sizes[name] and sum(numbers.values()) < budget:
                numbers[name] += 1
    return numbers


def _cut(scale: float, size: int, least: int) -> float:
    return min(float(size), max(float(least), scale * math.sqrt(size)))


def draw(
    pairs: Mapping[str, Sequence[tuple[str, str, int | None]]], numbers: Mapping[str, int], seed: int
) -> list[SheetPair]:
    """Draw pairs without replacement from each stratum, and shuffle them.

    Strata are drawn one by one, so another stratum or a larger number elsewhere changes no other sample.

    Args:
        pairs: Query, document and label of the pairs of each stratum.
        numbers: Number of pairs to draw from each stratum.
        seed: Seed of the draw.
    """
    drawn = []
    for name in sorted(pairs):
        ordered = sorted(pairs[name], key=lambda pair: pair[:2])
        # The first of a shuffled list, so that a larger sample contains a smaller one.
        random.Random(f"{seed}\0{name}").shuffle(ordered)
        drawn += [(*pair, name) for pair in ordered[: numbers[name]]]
    random.Random(seed).shuffle(drawn)
    return [
        SheetPair(row, query, document, label, stratum)
        for row, (query, document, label, stratum) in enumerate(drawn, start=1)
    ]


@dataclass(frozen=True)
class Stratum:
    """A part of the labels.

    Attributes:
        name: Kind of label, and type of query if there is one.
        pairs: Number of pairs.
        drawn: Number of them on the sheet.
    """

    name: str
    pairs: int
    drawn: int


def plan_sheet(
    data: RetrievalData,
    sheet: Path,
    budget: int,
    *,
    minimum: int = MIN_PAIRS_PER_STRATUM,
    types: Mapping[str, str] | None = None,
    seed: int = 42,
) -> list[Stratum]:
    """Write a sheet with a stratified sample of the labels of an edition, and its key beside it.

    Args:
        data: The edition.
        sheet: File to write, `.csv` or `.jsonl`.
        budget: Number of pairs that experts can check.
        minimum: Minimum number of pairs of each stratum.
        types: Type by query; without it, strata are kinds of labels.
        seed: Seed of the draw.

    Returns:
        The strata, sorted.

    Raises:
        BuildError: There are no labels, the budget is below the minimum of all strata, or the file exists.
    """
    pairs = _strata(data, types)
    if not pairs:
        raise BuildError("The edition has no labelled pairs, so there is nothing to draw from.")
    sizes = {name: len(pairs[name]) for name in sorted(pairs)}
    numbers = allocate(sizes, budget, minimum)
    queries = {row["id"]: Text(row["id"], row["text"]) for row in data.queries}
    documents = {row["id"]: Text(row["id"], row["text"], row["title"]) for row in data.corpus}
    write_sheet(sheet, draw(pairs, numbers, seed), sizes, queries, documents, seed)
    return [Stratum(name, size, numbers[name]) for name, size in sizes.items()]


def _strata(
    data: RetrievalData, types: Mapping[str, str] | None
) -> dict[str, list[tuple[str, str, int | None]]]:
    kinds: list[tuple[str, int | None, Mapping[str, Iterable[str]]]] = [
        (
            "positive",
            1,
            {query: [d for d, score in row.items() if score > 0] for query, row in data.qrels.items()},
        ),
        ("negative", 0, data.judged.negatives),
        ("disputed", None, data.judged.disputed),
    ]
    queries = {row["id"] for row in data.queries}
    strata: dict[str, list[tuple[str, str, int | None]]] = {}
    for kind, label, by_query in kinds:
        for query, documents in by_query.items():
            if query in queries:
                name = kind if types is None else f"{kind}, {types.get(query, NO_TYPE)}"
                strata.setdefault(name, []).extend((query, document, label) for document in documents)
    return {name: rows for name, rows in strata.items() if rows}
