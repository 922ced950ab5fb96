"""Scores of rankings without a model, each with its denominator.

All are binary. All but the micro recall are means over *all* queries that have a positive; a query without a
ranking scores 0. For a query with `R` positives:

| score | numerator | denominator |
|---|---|---|
| `ndcg_at_k` | sum of 1 / log2(rank + 1) over positives up to rank k | the same for ranks 1 to min(R, k) |
| `hit_at_k` | 1 if a positive is among the first k | 1 |
| `recall_macro_at_k` | positives among the first k | R |
| `recall_micro_at_k` | (positives among the first k, of all queries together) | (R of all queries together) |
| `mrr_at_k` | 1 / rank of the first positive, 0 beyond k | 1 |
| `map_capped_at_k` | sum of the precision at each positive up to rank k | min(R, k) |

trec_eval's `map_cut`, which mteb reports as `map_at_100`, divides by R. The two differ only for queries with
more than k positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["RANKING_DEPTH", "TOLERANCE", "ListScores", "score_rankings"]

#: Number of documents of a ranking that count.
RANKING_DEPTH = 100
#: Difference of scores that counts as equal: the source prints .16669 and .16691 for one list.
TOLERANCE = 5e-4


@dataclass(frozen=True)
class ListScores:
    """Scores of rankings; see the module for their denominators."""

    ndcg_at_10: float
    hit_at_1: float
    hit_at_10: float
    hit_at_100: float
    recall_macro_at_10: float
    recall_macro_at_100: float
    recall_micro_at_10: float
    recall_micro_at_100: float
    mrr_at_10: float
    map_capped_at_100: float


def score_rankings(
    rankings: Mapping[str, Sequence[str]], positives: Mapping[str, Collection[str]]
) -> ListScores:
    """Score rankings.

    Args:
        rankings: Documents by query, best first. Those beyond rank 100 are ignored.
        positives: Positive documents by query. Queries without any are left out.

    Raises:
        ValueError: No query has a positive, or a ranking holds a document twice.
    """
    relevant = {query: set(documents) for query, documents in positives.items() if documents}
    if not relevant:
        raise ValueError("No query has a positive, so there is nothing to score.")
    places: dict[str, list[int]] = {}
    for query, wanted in relevant.items():
        ranking = list(rankings.get(query, ()))[:RANKING_DEPTH]
        if len(set(ranking)) < len(ranking):
            raise ValueError(f"The ranking of query {query!r} holds a document twice.")
        places[query] = [rank for rank, document in enumerate(ranking, start=1) if document in wanted]
    total = sum(map(len, relevant.values()))

    def within(query: str, k: int) -> int:
        return sum(rank <= k for rank in places[query])

    def macro(k: int) -> float:
        return fmean(within(query, k) / len(wanted) for query, wanted in relevant.items())

    def micro(k: int) -> float:
        return sum(within(query, k) for query in relevant) / total

    def hit(k: int) -> float:
        return fmean(bool(within(query, k)) for query in relevant)

    return ListScores(
        ndcg_at_10=fmean(_ndcg(places[query], len(wanted), 10) for query, wanted in relevant.items()),
        hit_at_1=hit(1),
        hit_at_10=hit(10),
        hit_at_100=hit(100),
        recall_macro_at_10=macro(10),
        recall_macro_at_100=macro(100),
        recall_micro_at_10=micro(10),
        recall_micro_at_100=micro(100),
        mrr_at_10=fmean(
            1 / ranks[0] if (ranks := places[query]) and ranks[0] <= 10 else 0.0 for query in relevant
        ),
        map_capped_at_100=fmean(
            _average(places[query], len(wanted), 100) for query, wanted in relevant.items()
        ),
    )


def _ndcg(places: Sequence[int], positives: int, k: int) -> float:
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(positives, k) + 1))
    return sum(1 / log2(rank + 1) for rank in places if rank <= k) / ideal


def _average(places: Sequence[int], positives: int, k: int) -> float:
    ranks = [rank for rank in places if rank <= k]
    return sum(number / rank for number, rank in enumerate(ranks, start=1)) / min(positives, k)
