"""Random choice of one of the three rewrites of a query."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.sts.prompt import POSITIVE, REWRITE_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw", "score"]


def draw(query: str, probabilities: Sequence[float], seed: int) -> str:
    """Return the kind of rewrite for a query, which depends only on the query's id and the seed.

    Args:
        query: Id of the query.
        probabilities: Probability of each of `REWRITE_KINDS`; kinds with 0 are never drawn.
        seed: Seed of the draw.
    """
    (kind,) = random.Random(f"{seed} sts {query}").choices(REWRITE_KINDS, probabilities)
    return kind


def score(kind: str) -> float:
    """Return the label of a pair: 1 for `positive` alone."""
    return 1.0 if kind == POSITIVE else 0.0
