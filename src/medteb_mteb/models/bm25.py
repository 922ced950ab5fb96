"""BM25 as an mteb model: over jieba words or character bigrams for Chinese, over word stems for English.

Retrieval and reranking rank with BM25 (bm25s, Lucene's idf, k1 = 1.2, b = 0.75). Other task types need a
vector per text; they get a hashed vector of term weights of the same tokens, without idf because there is no
corpus to compute it from.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from mteb.similarity_functions import cos_sim, pairwise_cos_sim
from sklearn.feature_extraction.text import HashingVectorizer

from mar_st.text.words import BM25Index, character_bigrams, segmenter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import (
        Array,
        BatchedInput,
        CorpusDatasetType,
        PromptType,
        QueryDatasetType,
        RetrievalOutputType,
        TopRankedDocumentsType,
    )
    from numpy.typing import NDArray
    from torch.utils.data import DataLoader

HASH_DIMENSIONS = 4096


def normalise(text: str) -> str:
    """Return a text in NFKC and lower case, with a space for everything but letters and digits."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(char if char.isalnum() else " " for char in folded)


def normalised_jieba_words(text: str) -> list[str]:
    """Return the words of the normalised text as jieba's default dictionary segments it."""
    return [word for word in segmenter().lcut(normalise(text)) if not word.isspace()]


def english_words(text: str) -> list[str]:
    """Return normalised words without Lucene's stop words and plural endings (Harman's S stemmer, 1991)."""
    return [_without_s(word) for word in normalise(text).split() if word not in STOPWORDS_EN]


def _without_s(word: str) -> str:
    if word.endswith("ies") and word[-4:-3] not in ("e", "a") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("es") and word[-3:-2] not in ("a", "e", "o") and len(word) > 3:
        return word[:-1]
    return word[:-1] if word.endswith("s") and word[-2:-1] not in ("u", "s") and len(word) > 3 else word


TOKENISERS: Mapping[str, Callable[[str], list[str]]] = {
    "jieba": normalised_jieba_words,
    "char-bigram": character_bigrams,
    "english": english_words,
}


class BM25Model:
    """BM25 search, and hashed term weights where mteb asks for vectors.

    Documents are ranked by descending score, equal scores by descending id, as trec_eval does; the order of
    corpus and candidates has no influence. A document without any query token is not retrieved; a
    candidate without one comes last.
    """

    mteb_model_meta: ModelMeta

    def __init__(self, tokeniser: str = "jieba") -> None:
        if tokeniser not in TOKENISERS:
            raise ValueError(f"Unknown tokeniser {tokeniser!r}; choose one of {', '.join(TOKENISERS)}.")
        self.tokenise = TOKENISERS[tokeniser]
        self._index = BM25Index(())
        self._ids: list[str] = []
        self._id_ranks: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._vectorizer = HashingVectorizer(
            analyzer=self.tokenise, n_features=HASH_DIMENSIONS, norm=None, dtype=np.float32
        )

    def index(self, corpus: CorpusDatasetType, **kwargs: Any) -> None:
        """Indexes a corpus with columns ``id``, ``text`` and maybe ``title``; other arguments are unused."""
        del kwargs
        self._ids = list(corpus["id"])
        by_id = sorted(range(len(self._ids)), key=self._ids.__getitem__, reverse=True)
        self._id_ranks = np.empty(len(by_id), dtype=np.int64)
        self._id_ranks[by_id] = np.arange(len(by_id))
        texts: Iterable[str] = corpus["text"]
        if "title" in corpus.column_names:
            pairs = zip(corpus["title"], corpus["text"], strict=True)
            texts = (f"{title}\n{text}" if title else text for title, text in pairs)
        self._index = BM25Index([self.tokenise(text) for text in texts])

    def search(
        self,
        queries: QueryDatasetType,
        *,
        top_k: int,
        top_ranked: TopRankedDocumentsType | None = None,
        **kwargs: Any,
    ) -> RetrievalOutputType:
        """Rank the corpus, or each query's candidates, for queries with columns ``id`` and ``text``.

        Returns:
            Scores by document id, best first, by query id. Equal scores stay equal, as those of dense models
            do: pytrec_eval ranks them by descending id, the order in which they are returned.

        Raises:
            RuntimeError: If nothing was indexed.
            KeyError: If a candidate is not in the corpus.
        """
        del kwargs
        if not self._ids:
            raise RuntimeError("BM25 has no corpus to search; call index() first.")
        positions = {document: place for place, document in enumerate(self._ids)} if top_ranked else {}
        results: RetrievalOutputType = {}
        for query, text in zip(queries["id"], queries["text"], strict=True):
            scores = self.scores(text)
            if top_ranked is not None and query in top_ranked:
                chosen = np.array([positions[document] for document in top_ranked[query]], dtype=np.int64)
            else:
                chosen = np.flatnonzero(scores > 0)
            order = chosen[np.lexsort((self._id_ranks[chosen], -scores[chosen]))][:top_k]
            results[query] = {self._ids[place]: float(scores[place]) for place in order}
        return results

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return BM25 of every document of the corpus for one query, float32 (number of documents)."""
        return self._index.scores(self.tokenise(query))

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata | None = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Array:
        """Return hashed term weights of the texts: 1 + log(count) per token, signed, L2-normalised.

        Returns:
            float32 array (number of texts, 4096). A text without tokens is a zero vector.
        """
        del task_metadata, hf_split, hf_subset, prompt_type, kwargs
        texts = [text for batch in inputs for text in batch["text"]]
        counts = self._vectorizer.transform(texts)
        counts.data = np.sign(counts.data) * (1 + np.log(np.maximum(np.abs(counts.data), 1)))
        vectors: NDArray[np.float32] = counts.toarray().astype(np.float32, copy=False)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(norms > 0, norms, 1)

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Cosine between all pairs."""
        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Cosine between corresponding rows."""
        return pairwise_cos_sim(embeddings1, embeddings2)
