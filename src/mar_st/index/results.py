"""Search results, and the fusion of several rankings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mar_st.index.base import Key
    from mar_st.index.filters import Scalar

#: Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009).
RRF = 60

#: Whether a search found a document that is near enough to be an answer.
Match: TypeAlias = Literal["good", "doubtful"]


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


class Hits(list[Hit]):
    """The hits of one query, by descending score.

    Attributes:
        nearest: Score of the nearest document by vectors, whatever the hits are ranked by; `None` if no
            vectors were compared or no document passed the filter.
        compared: Whether vectors were compared.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, nearest: float | None = None, compared: bool | None = None
    ) -> None:
        super().__init__(hits)
        self.nearest = nearest
        self.compared = nearest is not None if compared is None else compared


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


def one_leg(name: str, keys: Sequence[Key], scores: Sequence[float]) -> list[Ranked]:
    """Return the ranking of a single leg."""
    return [
        Ranked(key, float(score), {name: Leg(rank, float(score))})
        for rank, (key, score) in enumerate(zip(keys, scores, strict=False), 1)
    ]


def fuse(rankings: Mapping[str, tuple[Sequence[Key], Sequence[float]]]) -> list[Ranked]:
    """Fuse rankings by reciprocal rank: the sum of 1 / (60 + rank) over the rankings that hold a document.

    Args:
        rankings: Keys and scores by descending score, for each leg.

    Returns:
        All documents by descending fused score; ties by the order of the legs, then by rank in the leg.
    """
    legs: dict[Key, dict[str, Leg]] = {}
    for name, (keys, scores) in rankings.items():
        for rank, (key, score) in enumerate(zip(keys, scores, strict=False), 1):
            legs.setdefault(key, {})[name] = Leg(rank, float(score))
    fused = [
        Ranked(key, sum(1 / (RRF + leg.rank) for leg in document_legs.values()), document_legs)
        for key, document_legs in legs.items()
    ]
    return sorted(fused, key=lambda document: -document.score)
