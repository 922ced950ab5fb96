"""Hybrid candidate lists: two lists fused by rank, and a safeguard for lists without a positive."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.pooling.pool import Pooling, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SEED", "hybrid_lists", "safeguard"]

#: Seed of the published safeguards.
SEED = 20260524
#: Constant of reciprocal rank fusion, added to every rank.
RRF_K = 100


def hybrid_lists(
    lists: Sequence[Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Sequence[str]],
    split: str,
    *,
    size: int = 100,
    k: int = RRF_K,
    seed: int = SEED,
) -> dict[str, list[str]]:
    """Fuse lists by `sum 1 / (k + rank)`, ties by best rank and then by id, and add the safeguards.

    Args:
        lists: Documents by query of each retriever, best first.
        qrels: Positive documents by query.
        split: Name of the split, on which the safeguards depend.
        size: Maximum length of a fused list.
        k: Constant added to every rank.
        seed: Seed of the safeguards.
    """
    depth = max((len(ranking) for rows in lists for ranking in rows.values()), default=1)
    how = Pooling(size=size, depth=depth, merge="rrf", k=k, ties="id")
    fused = {}
    for query, positives in qrels.items():
        runs = {str(number): rows[query] for number, rows in enumerate(lists)}
        candidates = [candidate.document for candidate in merge(runs, how)]
        if not set(positives).intersection(candidates):
            candidates.append(safeguard(positives, split, query, seed))
        fused[query] = candidates
    return fused


def safeguard(positives: Sequence[str], split: str, query: str, seed: int = SEED) -> str:
    """Return the positive for rank 101; the same one for the same seed, split and query.

    Args:
        positives: The query's positives, in any order.
        split: Name of the split.
        query: Id of the query.
        seed: Seed of the safeguard.
    """
    return random.Random(f"{seed}\0{split}\0{query}\0positive_safeguard").choice(sorted(positives))
