"""Retrievers that rank documents for queries (BM25, a dense model), and a cross-encoder that scores them.

All searches are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import torch

from mar_st.errors import MarError
from mar_st.model.mar import open_model
from mar_st.model.reranker import Reranker, RerankerSource
from mar_st.modules.arrangement import check_similarity
from mar_st.text.words import K1, TOKENIZERS, B, BM25Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from mar_st.recipes.schema import Side
    from mar_st.teachers.model import ModelTeacher

#: Maximum bytes of the vectors of a corpus that are kept in memory; more are read block by block.
MAX_MEMORY_BYTES = 8 * 2**30

#: Documents that are scored at once.
BLOCK_DOCUMENTS = 65_536


class Scorer(Protocol):
    """Scores documents for queries."""

    def identity(self) -> dict[str, Any]:
        """Return, as JSON, everything the scores depend on."""

    def prepare(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        """Take queries and corpus, which are numbered from here on."""

    def score(self, rows: Sequence[int], documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the scores of some documents for each of some queries, float32."""


class Retriever(Scorer, Protocol):
    """Also finds the best documents of the corpus."""

    name: str

    def search(self, rows: Sequence[int], k: int) -> np.ndarray:
        """Return the best `k` documents for each of some queries, by descending score.

        Returns:
            Numbers of documents, `(queries, k)` int64; -1 where there are no more.
        """


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the places of the `k` highest of some scores, `(n,)`, by descending score, ties by place."""
    if k < len(scores):
        edge = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= edge)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]


class BM25:
    """BM25 (Lucene's idf) over character bigrams or jieba words of the normalised text.

    Documents that share no token with a query are not found.

    Args:
        tokens: `char-bigram` or `jieba`.
    """

    def __init__(self, tokens: str = "char-bigram") -> None:
        if tokens not in TOKENIZERS:
            raise MarError(f"The tokenizer of bm25 is {' or '.join(TOKENIZERS)}; got {tokens!r}.")
        self.tokens = tokens
        self.name = "bm25" if tokens == "char-bigram" else f"bm25:{tokens}"
        self._index = BM25Index(())
        self._queries: Sequence[str] = ()

    def identity(self) -> dict[str, Any]:
        """Return its settings."""
        return {"kind": "bm25", "tokens": self.tokens, "k1": K1, "b": B}

    def prepare(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        """Index the corpus."""
        tokenise = TOKENIZERS[self.tokens]
        self._queries = queries
        self._index = BM25Index([tokenise(text) for text in corpus])

    def search(self, rows: Sequence[int], k: int) -> np.ndarray:
        """Rank the whole corpus by BM25 score, as `Retriever.search`."""
        documents = np.full((len(rows), k), -1, dtype=np.int64)
        for place, row in enumerate(rows):
            of_query = self._scores(row)
            order = best(of_query, k)
            order = order[of_query[order] > 0]
            documents[place, : len(order)] = order
        return documents

    def score(self, rows: Sequence[int], documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Score given documents for queries, as `Scorer.score`."""
        return [self._scores(row)[places] for row, places in zip(rows, documents, strict=True)]

    def _scores(self, row: int) -> np.ndarray:
        return self._index.scores(TOKENIZERS[self.tokens](self._queries[row]))


class Dense:
    """A sentence-transformers model; vectors are computed once and kept in a store.

    Queries are encoded as `encode_query` does and documents as `encode_document` does, with the model's own
    prompts. The score is the model's: cosine or dot product.

    Args:
        teacher: Encodes, and keeps the vectors.
        name: Name of the model, for messages and reports.
        symmetric: Encode documents as queries (paraphrases).

    Raises:
        MarError: The model compares by neither cosine nor dot product.
    """

    def __init__(self, teacher: ModelTeacher, name: str = "model", *, symmetric: bool = False) -> None:
        check_similarity(teacher.model, name)
        self.teacher, self.name, self.unit = teacher, name, teacher.model.similarity_fn_name == "cosine"
        self.document_role: Side = "query" if symmetric else "document"
        self._queries: Any = None
        self._documents: Any = None
        self._loaded: list[torch.Tensor] = []

    @classmethod
    def open(
        cls,
        model: str | SentenceTransformer,
        store: Path,
        *,
        prompt: str | None = None,
        symmetric: bool = False,
        autocast: bool = False,
        batch_size: int = 64,
    ) -> Self:
        """Load a model.

        Args:
            model: A folder or a Hub name, or a model.
            store: Folder of the vectors (`teachers.store`), shared with other runs.
            prompt: Prefix of queries; default the model's own.
            symmetric: Encode documents as queries (paraphrases).
            autocast: Compute in bfloat16.
            batch_size: Texts per forward pass.
        """
        from mar_st.model.encoders import check_source  # lazy: sentence_transformers
        from mar_st.teachers.model import ModelTeacher  # lazy: transformers
        from mar_st.teachers.store import TeacherStore  # lazy: transformers

        name = model if isinstance(model, str) else "model"
        if isinstance(model, str):
            check_source(model, what="model")
            model = open_model(model)
        teacher = ModelTeacher.of_model(
            model.eval(), TeacherStore(store), autocast=autocast, batch_size=batch_size
        )
        teacher = teacher if prompt is None else teacher.with_query_prompt(prompt)
        return cls(teacher, name, symmetric=symmetric)

    def identity(self) -> dict[str, Any]:
        """Return weights, settings and prompts."""
        return {
            "kind": "dense",
            "query": self.teacher.identity("query"),
            "document": self.teacher.identity(self.document_role),
            "similarity": self.teacher.model.similarity_fn_name,
        }

    def prepare(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        """Encode queries and corpus, or read their vectors from the store."""
        asked = self.teacher.vectors(queries, "query")
        documents = self.teacher.vectors(corpus, self.document_role)
        self._queries = asked.cut(None, normalised=self.unit)
        self._documents = documents.cut(None, normalised=self.unit)
        self._loaded = []
        if self._documents.shape[0] * self._documents.shape[1] * 4 <= MAX_MEMORY_BYTES:
            self._loaded = list(self._blocks())

    def search(self, rows: Sequence[int], k: int) -> np.ndarray:
        """Rank the whole corpus by the product of vectors, as `Retriever.search`."""
        queries = torch.from_numpy(self._queries[np.asarray(rows)]).to(self.teacher.model.device)
        scores = queries.new_empty(len(rows), 0)
        found = scores.long()
        start = 0
        for block in self._blocks():
            values, places = torch.topk(queries @ block.T, min(k, len(block)), dim=1)
            scores, found = torch.cat([scores, values], dim=1), torch.cat([found, places + start], dim=1)
            scores, order = torch.topk(scores, min(k, scores.shape[1]), dim=1)
            found = found.gather(1, order)
            start += len(block)
        return found.cpu().numpy()

    def score(self, rows: Sequence[int], documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Score given documents for queries, as `Scorer.score`."""
        queries = self._queries[np.asarray(rows)]
        return [self._documents[places] @ query for query, places in zip(queries, documents, strict=True)]

    def _blocks(self) -> Iterator[torch.Tensor]:
        """Yield the document vectors on the model's device; those of a small corpus stay there."""
        if self._loaded:
            yield from self._loaded
            return
        for start in range(0, len(self._documents), BLOCK_DOCUMENTS):
            block = torch.from_numpy(self._documents[start : start + BLOCK_DOCUMENTS])
            yield block.to(self.teacher.model.device)


class CrossScorer:
    """A cross-encoder that scores candidates for the filters; it does not search.

    Args:
        model: A `sentence_transformers.CrossEncoder`, a folder or a Hub name.
    """

    def __init__(self, model: RerankerSource) -> None:
        self._reranker = Reranker(model)
        self._queries: Sequence[str] = ()
        self._corpus: Sequence[str] = ()

    def identity(self) -> dict[str, Any]:
        """Return the identity of its weights."""
        from mar_st.model.digest import modules_digest  # lazy: sentence_transformers

        return {"kind": "cross-encoder", "modules": modules_digest(list(self._reranker.open().children()))}

    def prepare(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        """Take the texts."""
        self._queries, self._corpus = queries, corpus

    def score(self, rows: Sequence[int], documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Score given documents for queries, as `Scorer.score`."""
        pairs = [
            (self._queries[row], self._corpus[document])
            for row, some in zip(rows, documents, strict=True)
            for document in some
        ]
        scores = self._reranker.score(pairs)
        return np.split(scores, np.cumsum([len(some) for some in documents])[:-1])
