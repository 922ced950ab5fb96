"""BM25 of bm25s from word counts: the same scores, without the words of every document in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import bm25s
import numpy as np

from mar_st.text.bm25 import K1, B

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CountedBM25", "CountedWords"]


class CountedWords(NamedTuple):
    """Words of a corpus, counted; bm25s takes any object with these two fields.

    Attributes:
        ids: For each pair of a word and a document that holds it: the word's index (int32), the document's
            index (int32) and the number of occurrences (float32), `(pairs,)` each, ordered by document. Then
            the length of each document in words, int64, `(documents,)`.
        vocab: Index of each word.
    """

    ids: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    vocab: dict[str, int]


class CountedBM25(bm25s.BM25):  # type: ignore[misc]
    """BM25 (Lucene) of counted words.

    bm25s fills its matrix in a Python loop over documents that holds all words as objects; it leaves
    `build_index_from_ids` to subclasses that build it in another way.

    Args:
        mean: Mean length of a document, in words.
    """

    def __init__(self, mean: float) -> None:
        super().__init__(method="lucene", k1=K1, b=B)
        self.mean = mean

    def build_index_from_ids(
        self,
        unique_token_ids: Sequence[int],
        corpus_token_ids: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        show_progress: bool = True,  # noqa: ARG002 -- bm25s passes it
        leave_progress: bool = False,  # noqa: ARG002 -- bm25s passes it
    ) -> dict[str, Any]:
        """Return the score of every word in every document, by columns (words).

        Args:
            unique_token_ids: Indices of the words.
            corpus_token_ids: The field `ids` of `CountedWords`.
            show_progress: Not used.
            leave_progress: Not used.
        """
        self.nonoccurrence_array = None  # Lucene's scores of absent words are 0
        word, document, occurrences, lengths = corpus_token_ids
        count = len(lengths)
        document_frequency = np.bincount(word, minlength=len(unique_token_ids))
        idf = np.log(1 + (count - document_frequency + 0.5) / (document_frequency + 0.5)).astype(np.float32)
        length_factor = (self.k1 * ((1 - self.b) + self.b * lengths / self.mean)).astype(np.float32)
        scores = idf[word] * (occurrences / (length_factor[document] + occurrences))
        order = np.argsort(word, kind="stable")  # within a word documents stay in their order
        return {
            "data": scores[order],
            "indices": document[order],
            "indptr": np.concatenate([[0], np.cumsum(document_frequency)]).astype(np.int64),
            "num_docs": count,
        }
