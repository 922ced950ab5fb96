"""Search of an index by query texts: encoding, search by vectors and words, fusion, reranking, snippets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from mar_st.errors import MarError
from mar_st.index.base import Index, Key, Where, checked_k
from mar_st.index.filters import parse_filter
from mar_st.index.snippets import snippet
from mar_st.model.reranker import Reranker, RerankerSource
from mar_st.online.batcher import check_deadline
from mar_st.online.encoders import load_query_encoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.data.corpus import Entry, Scalar
    from mar_st.online.protocol import QueryEncoder

#: Minimum number of documents that each leg of a hybrid search passes to the fusion.
MIN_FUSION_DEPTH = 100

#: Number of documents to rerank if there is a reranker and no number is given.
DEFAULT_RERANKED = 50

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

    def to_json(self) -> dict[str, Any]:
        """Return the hit as JSON, without its whole text."""
        return {
            "id": self.id, "score": self.score, "rank": self.rank, "title": self.title,
            "snippet": self.snippet, "metadata": self.metadata,
            "legs": {name: {"rank": leg.rank, "score": leg.score} for name, leg in self.legs.items()},
        }  # fmt: skip


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


def fuse(
    rankings: Mapping[str, tuple[Sequence[Key], Sequence[float]]], words_weight: float = 1.0
) -> list[Ranked]:
    """Fuse rankings by reciprocal rank: the sum of weight / (60 + rank) over rankings that hold a document.

    Args:
        rankings: Keys and scores by descending score, for each leg. A single one keeps its scores.
        words_weight: Weight of the leg `bm25`; that of others is 1.

    Returns:
        All documents by descending fused score; ties by the order of the legs, then by rank in the leg.
    """
    legs: dict[Key, dict[str, Leg]] = {}
    for name, (keys, scores) in rankings.items():
        for rank, (key, score) in enumerate(zip(keys, scores, strict=False), 1):
            legs.setdefault(key, {})[name] = Leg(rank, float(score))
    if len(rankings) == 1:
        return [Ranked(key, leg.score, found) for key, found in legs.items() for leg in found.values()]
    weights = {"bm25": words_weight}
    fused = [
        Ranked(key, sum(weights.get(name, 1.0) / (RRF + leg.rank) for name, leg in found.items()), found)
        for key, found in legs.items()
    ]
    return sorted(fused, key=lambda document: -document.score)


class Searcher:
    """An index with a query encoder and optionally a reranker; safe to call from several threads.

    Args:
        index: The index.
        encoder: Encodes queries; without one, queries must be vectors, or are searched by words only.
        reranker: Scores the best documents again.

    Attributes:
        effort: Search settings: those tuned for this encoder, or those of the index.
        words_weight: Weight of BM25 in hybrid search: that tuned for this encoder, or 1.

    Raises:
        MarError: The encoder does not belong to the vectors of the index, or there is a reranker and the
            index keeps no texts.
    """

    def __init__(
        self, index: Index, encoder: QueryEncoder | None = None, *, reranker: Reranker | None = None
    ) -> None:
        self.index, self.encoder, self.reranker = index, encoder, reranker
        if encoder is not None:
            _check_encoder(index, encoder)
        if reranker is not None and not index.has_texts:
            raise MarError(
                f"{index.name} keeps no texts that a reranker could score. Build it with the corpus, or "
                "give no reranker."
            )
        tuned = index.effort_of(encoder)
        self.effort: dict[str, int] = {**index.settings, **tuned.get("search", {})}
        self.words_weight = float(tuned.get("words", 1.0))

    @classmethod
    def open(
        cls,
        index: Index | str | Path,
        encoder: str | Path | QueryEncoder | None = None,
        *,
        query: str | None = None,
        reranker: RerankerSource | None = None,
    ) -> Self:
        """Open an index and an encoder.

        Args:
            index: An index, its folder, or a `milvus:` address (see `Index.open`).
            encoder: A query encoder, or the source to load it from: an exported folder, a model, `mar-mini`.
            query: Name of the query encoder in a model that has several; without `encoder`, in the model
                that encoded the documents.
            reranker: A cross-encoder, its folder or its Hub name.

        Raises:
            MarError: Something is missing, or index and encoder do not belong together.
        """
        opened = index if isinstance(index, Index) else Index.open(index)
        if encoder is None and query is not None:
            encoder = opened.model_source()
        if isinstance(encoder, str | Path):
            encoder = load_query_encoder(encoder, query=query)
        elif query is not None:
            raise MarError(f"The encoder is open already; query={query!r} is chosen when it is loaded.")
        return cls(opened, encoder, reranker=None if reranker is None else Reranker(reranker))

    def search(
        self,
        queries: Sequence[str] | np.ndarray,
        k: int = 10,
        *,
        where: Where = None,
        hybrid: bool = False,
        rerank: int | None = None,
    ) -> list[list[Hit]]:
        """Return the best documents for each query.

        Args:
            queries: Texts, or vectors `(n, dim)`.
            k: Documents per query.
            where: Filter on the metadata, see `mar_st.index.filters`.
            hybrid: Fuse the vectors' ranking with BM25's.
            rerank: Number of best documents to rerank; default 50 if there is a reranker, 0: none. With a
                larger `k`, the other documents follow in their order, with scores below the reranker's.

        Returns:
            For each query its hits by descending score.

        Raises:
            MarError: Queries, `k` or options do not fit the index, or there is no encoder for texts.
            FilterError: The filter does not fit.
        """
        if isinstance(queries, np.ndarray):
            return self.search_vectors(queries, k=k, where=where, hybrid=hybrid, rerank=rerank)
        texts = [queries] if isinstance(queries, str) else list(queries)
        vectors = self._encoded(texts)
        return self.search_vectors(vectors, texts, k=k, where=where, hybrid=hybrid, rerank=rerank)

    def search_vectors(
        self,
        vectors: np.ndarray,
        texts: Sequence[str] | None = None,
        k: int = 10,
        *,
        where: Where = None,
        hybrid: bool = False,
        rerank: int | None = None,
        deadline: float | None = None,
    ) -> list[list[Hit]]:
        """Search for queries that are already encoded; see `search`.

        Args:
            vectors: `(n, dim)` floats.
            texts: The queries' texts, for snippets; needed for `hybrid` and reranking.
            k: See `search`.
            where: See `search`.
            hybrid: See `search`.
            rerank: See `search`.
            deadline: Value of `time.monotonic()` until which the caller waits; default no limit.

        Raises:
            DeadlinePassed: The deadline passed before the hits were ready.
        """
        index = self.index
        k, rerank_count = checked_k(k), self._reranked(rerank)
        if texts is not None and len(texts) != len(vectors):
            raise MarError(f"{len(vectors)} vectors of queries came with {len(texts)} texts.")
        if texts is None and (hybrid or rerank_count):
            raise MarError("Hybrid search and reranking need the texts of the queries.")
        chosen = parse_filter(where)
        depth = max(k, rerank_count, MIN_FUSION_DEPTH if hybrid else 0)
        dense = index.find(index.checked(self._cut(vectors)), depth, chosen, self.effort)
        rankings = [{"dense": pair} for pair in zip(dense.keys, dense.scores, strict=True)]
        if hybrid:
            words = index.find_words(list(texts or ()), depth, chosen)
            for ranking, keys, scores in zip(rankings, words.keys, words.scores, strict=True):
                ranking["bm25"] = keys, scores
        ranked = [fuse(ranking, self.words_weight) for ranking in rankings]
        return self._hits(ranked, texts, k, rerank_count, deadline)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of queries as the index compares them, `(n, dim)` float32.

        Raises:
            MarError: There is no encoder.
        """
        return self.index.checked(self._cut(self._encoded(texts)))

    def _encoded(self, texts: Sequence[str]) -> np.ndarray:
        if self.encoder is None:
            raise MarError("Queries are texts, but there is no encoder. Give one, e.g. encoder='mar-mini'.")
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError as error:  # such as bytes of a command line that are not UTF-8
                raise MarError(f"A query is not valid Unicode ({error}).") from error
        return self.encoder.encode(texts)

    def _cut(self, vectors: np.ndarray) -> np.ndarray:
        """Return the vectors of an encoder that is wider than the index, cut to its Matryoshka dimensions."""
        given = np.asarray(vectors)
        wide = self.encoder is not None and given.ndim == 2 and given.shape[1] == self.encoder.dim
        return given[:, : self.index.dim] if wide else given

    def _reranked(self, rerank: int | None) -> int:
        if rerank is not None and (type(rerank) is not int or rerank < 0):
            raise MarError(f"rerank is the number of documents to score again, from 0; got {rerank!r}.")
        if rerank and self.reranker is None:
            raise MarError("There is no reranker. Open the searcher with reranker=MODEL.")
        return 0 if self.reranker is None else DEFAULT_RERANKED if rerank is None else rerank

    def _hits(
        self,
        ranked: list[list[Ranked]],
        texts: Sequence[str] | None,
        k: int,
        rerank_count: int,
        deadline: float | None = None,
    ) -> list[list[Hit]]:
        check_deadline(deadline)
        ranked = [documents[: max(k, rerank_count)] for documents in ranked]
        keys = list(dict.fromkeys(document.key for documents in ranked for document in documents))
        stored = dict(zip(keys, self.index.documents(keys), strict=True))
        queries: Sequence[str | None] = texts or [None] * len(ranked)
        if rerank_count and texts is not None:
            ranked = [
                self._reordered(text, documents, rerank_count, stored, deadline)
                for text, documents in zip(texts, ranked, strict=True)
            ]
        return [
            [
                Hit(
                    id=stored[key].id, score=score, rank=rank, title=stored[key].title,
                    snippet=snippet(stored[key].text, query), metadata=stored[key].metadata, legs=legs,
                    text=stored[key].text,
                )
                for rank, (key, score, legs) in enumerate(documents[:k], 1)
            ]
            for query, documents in zip(queries, ranked, strict=True)
        ]  # fmt: skip

    def _reordered(
        self,
        query: str,
        documents: list[Ranked],
        count: int,
        stored: Mapping[Key, Entry],
        deadline: float | None,
    ) -> list[Ranked]:
        """Return the first documents by descending score of the reranker, then the others in their order.

        The scores of the two rankings cannot be compared, so the others get the lowest score of the reranker
        minus 1, 2, 3, ...; `legs` holds their own scores.
        """
        assert self.reranker is not None  # noqa: S101 -- checked by `_reranked`
        pairs = [(query, stored[document.key].document) for document in documents[:count]]
        scores: list[float] = []
        # A cross-encoder takes milliseconds for each pair: check often that the caller still waits.
        for start in range(0, len(pairs), 2 * self.reranker.batch_size):
            check_deadline(deadline)
            scores += self.reranker.score(pairs[start : start + 2 * self.reranker.batch_size]).tolist()
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        first = [
            Ranked(
                documents[place].key,
                scores[place],
                {**documents[place].legs, "rerank": Leg(rank, scores[place])},
            )
            for rank, place in enumerate(order, 1)
        ]
        lowest = first[-1].score if first else 0.0
        others = [one._replace(score=lowest - place) for place, one in enumerate(documents[count:], 1)]
        return first + others


def _check_encoder(index: Index, encoder: Any) -> None:
    space = getattr(encoder, "space", None)
    if space and index.space and space != index.space:
        raise MarError(
            f"The query encoder belongs to another document space ({space[:12]}) than the vectors of "
            f"{index.name} ({index.space[:12]}): their scores would be meaningless. Give the encoder of the "
            "model that encoded the documents, or encode the corpus with this one."
        )
    if not (space and index.space):
        side = "query encoder" if index.space else f"index {index.name}"
        warnings.warn(
            f"The {side} does not say which document space it belongs to, so it is not known whether they "
            "belong together.",
            stacklevel=3,
        )
    # A wider vector of the same space is cut to its Matryoshka dimensions, which cosine allows.
    cut = encoder.dim > index.dim and bool(space) and space == index.space and index.similarity == "cosine"
    if encoder.dim != index.dim and not cut:
        raise MarError(
            f"The query encoder gives {encoder.dim} dimensions, the index {index.name} has {index.dim}. Give "
            "the encoder of the model that encoded the documents."
        )
