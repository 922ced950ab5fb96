"""Search results, and the fusion of several rankings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.encode.corpus import Scalar
    from mar_st.index.base import Key

#: Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009).
RRF = 60


class Leg(NamedTuple):
    """Rank and score of a document in one part of a hybrid search.

    Attributes:
        rank: Rank in that part, from 1.
        score: Score in that part.
    """

    rank: int
    score: float


@dataclass(slots=True)
class Hit:
    """A document that was found.

    Attributes:
        id: Its id.
        score: Score that it is ranked by: that of the only leg, the fused one, or that of the reranker (below
            the reranker's lowest for documents that were not reranked).
        rank: Its rank, from 1.
        title: Its title.
        snippet: The part of its text that holds most of the query.
        metadata: Its metadata.
        legs: Which legs found it: `dense`, `bm25`, `rerank`.
        text: Its whole text.
    """

    id: str
    score: float
    rank: int
    title: str
    snippet: str
    metadata: dict[str, Scalar]
    legs: dict[str, Leg]
    text: str = field(default="", repr=False)

    def to_json(self, *, text: bool = False) -> dict[str, Any]:
        """Return the hit as JSON, with its whole text if asked for."""
        content: dict[str, Any] = {
            "id": self.id, "score": self.score, "rank": self.rank, "title": self.title,
            "snippet": self.snippet, "metadata": self.metadata,
            "legs": {name: {"rank": leg.rank, "score": leg.score} for name, leg in self.legs.items()},
        }  # fmt: skip
        return {**content, "text": self.text} if text else content


class Ranked(NamedTuple):
    """A ranked document, before its title and text are read.

    Attributes:
        key: Key of the document in the index.
        score: Score that it is ranked by.
        legs: Which legs found it.
    """

    key: Key
    score: float
    legs: dict[str, Leg]


def fuse(rankings: Mapping[str, tuple[Sequence[Key], Sequence[float]]]) -> list[Ranked]:
    """Fuse rankings by reciprocal rank: the sum of 1 / (60 + rank) over the rankings that hold a document.

    Args:
        rankings: Keys and scores by descending score, for each leg. A single one keeps its scores.

    Returns:
        All documents by descending fused score; ties by the order of the legs, then by rank in the leg.
    """
    legs: dict[Key, dict[str, Leg]] = {}
    for name, (keys, scores) in rankings.items():
        for rank, (key, score) in enumerate(zip(keys, scores, strict=False), 1):
            legs.setdefault(key, {})[name] = Leg(rank, float(score))
    if len(rankings) == 1:
        return [Ranked(key, leg.score, found) for key, found in legs.items() for leg in found.values()]
    fused = [
        Ranked(key, sum(1 / (RRF + leg.rank) for leg in found.values()), found) for key, found in legs.items()
    ]
    return sorted(fused, key=lambda document: -document.score)
