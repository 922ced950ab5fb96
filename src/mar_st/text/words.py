"""Words of a text, BM25 over them (by bm25s), and the terms of a query to highlight in hits."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import user_cache
from mar_st.text.texts import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

#: Parameters of BM25: saturation of term counts, and weight of a document's length.
K1, B = 1.2, 0.75

#: Arrays of a matrix of scores by column.
COLUMNS = ("data", "indices", "indptr")


def character_bigrams(text: str) -> list[str]:
    """Return the pairs of neighbouring letters and digits."""
    plain = normalise(text)
    return [plain[i : i + 2] for i in range(len(plain) - 1)] or ([plain] if plain else [])


@lru_cache(maxsize=1)
def segmenter() -> Any:
    """Return jieba's tokenizer, with its cache in a folder that belongs only to this user.

    By default jieba reads `jieba.cache` in the folder for temporary files, whoever put it there.
    """
    import jieba  # lazy: jieba

    jieba.setLogLevel(logging.WARNING)  # it reports loading its dictionary
    tokenizer = jieba.Tokenizer()
    with TemporaryDirectory() as temporary:
        tokenizer.cache_file, tokenizer.tmp_dir = "jieba.cache", str(user_cache() or temporary)
        tokenizer.initialize()
    return tokenizer


def words(text: str) -> list[str]:
    """Return the words by jieba, in lower case, without punctuation."""
    return [word for word in segmenter().lcut(text.lower()) if normalise(word)]


#: Functions that split a text into tokens, by name.
TOKENIZERS: dict[str, Callable[[str], list[str]]] = {"char-bigram": character_bigrams, "jieba": words}

_WORD_RUNS = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+|[^\W_\u3400-\u9fff\uf900-\ufaff]+")


def query_terms(query: str) -> list[str]:
    """Return the terms to highlight in a hit: pairs of Chinese characters, and whole words of other scripts.

    It needs no dictionary, so it adds nothing to the start-up time.
    """
    terms: dict[str, None] = {}
    for run in _WORD_RUNS.findall(query.lower()):
        chinese = "\u3400" <= run[0] <= "\ufaff" and len(run) > 1
        terms.update(dict.fromkeys(run[i : i + 2] for i in range(len(run) - 1)) if chinese else {run: None})
    return list(terms)


class BM25Index:
    """Scores of documents for queries, in memory.

    Args:
        documents: Tokens of each document.
        k1: Saturation of term counts.
        b: Weight of a document's length.
        method: Name of the BM25 variant in bm25s; default that of Lucene.

    Raises:
        ImportError: bm25s is not installed.
    """

    def __init__(
        self, documents: Iterable[Sequence[str]], *, k1: float = K1, b: float = B, method: str = "lucene"
    ) -> None:
        self._words: dict[str, int] = {}
        ids = [
            [self._words.setdefault(token, len(self._words)) for token in document] for document in documents
        ]
        self._count = len(ids)
        self._index: Any = None
        if self._words:  # bm25s cannot index nothing
            import bm25s  # lazy: bm25s

            logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG
            self._index = bm25s.BM25(method=method, k1=k1, b=b)
            self._index.index((ids, self._words), create_empty_token=False, show_progress=False)

    def scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores of all documents, `(documents,)` float32; 0 where no token is shared.

        Args:
            query: Tokens of the query.
        """
        known = self._index.get_tokens_ids(query) if self._index is not None else []
        if not known:
            return np.zeros(self._count, dtype=np.float32)
        return np.asarray(self._index.get_scores_from_ids(known), dtype=np.float32)

    def columns(self) -> tuple[list[str], dict[str, NDArray[Any]]]:
        """Return the words, and the matrix of scores by column.

        Returns:
            The words; and `data`, float32: the scores of the documents that hold a word, one word after the
            other; `indices`: the rows of these documents; `indptr`: where each word begins, `(words + 1,)`.
        """
        nothing = {"data": np.empty(0, np.float32), "indices": np.empty(0, np.int32)}
        matrix = self._index.scores if self._index else {**nothing, "indptr": np.zeros(1, np.int32)}
        return list(self._words), {name: matrix[name] for name in COLUMNS}
