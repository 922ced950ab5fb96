"""BM25 lists as published: bm25s (Robertson's idf, k1 1.5, b 0.75) over words as they come from the text.

bm25s leaves open which of several documents with the same score it returns; here a digest of the id decides,
which says nothing about a document's relevance (its position would: positives are drawn first). The two cards
of one published split differ by 0.0002 in nDCG@10, which such a difference can explain.
"""

from __future__ import annotations

import hashlib
import random
import re
from typing import TYPE_CHECKING, Literal

import numpy as np

from mar_st.text.bm25 import BM25Index
from mar_st.text.words import segmenter
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["NANO_B", "NANO_K1", "TOKENIZERS", "Tokens", "bm25_lists", "check_tokens", "choose_tokens"]

NANO_K1, NANO_B = 1.5, 0.75
#: Characters that are cut into words at once.
CHUNK_CHARACTERS = 4000
#: Number of queries from which the language is detected.
LANGUAGE_SAMPLE_SIZE = 10

Tokens = Literal["jieba", "regex"]

_WORD = re.compile(r"\b\w+\b")
_HAN = re.compile(r"[㐀-鿿豈-﫿]")


def raw_jieba_words(text: str) -> list[str]:
    """Return the words of jieba's default mode, with punctuation and case, in pieces of 4,000 characters."""
    pieces = (text[start : start + CHUNK_CHARACTERS] for start in range(0, len(text), CHUNK_CHARACTERS))
    return [word for piece in pieces for word in segmenter().lcut(piece) if word]


def regex_words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


TOKENIZERS: Mapping[str, Callable[[str], list[str]]] = {"jieba": raw_jieba_words, "regex": regex_words}


def check_tokens(tokens: str) -> None:
    """Raise an error if a tokenisation is unknown."""
    if tokens not in TOKENIZERS:
        raise BuildError(f"The tokenizer must be {' or '.join(TOKENIZERS)}; got {tokens!r}.")


def choose_tokens(languages: Sequence[str], queries: Sequence[str]) -> Tokens:
    """Return how to cut texts: by jieba for Chinese, else by a regular expression.

    The card's language decides, else whether most of ten queries hold a Chinese character. (The published
    builder also stems and drops stop words of some languages; this one does not.)

    Args:
        languages: Languages that the card declares.
        queries: Texts of the queries.
    """
    if len(languages) == 1 and languages[0].lower() != "multilingual":
        return "jieba" if languages[0].lower().split("-")[0] in ("zh", "zho", "cmn") else "regex"
    drawn = random.Random(0).sample(list(queries), min(LANGUAGE_SAMPLE_SIZE, len(queries)))
    return "jieba" if 2 * sum(bool(_HAN.search(text)) for text in drawn) > len(drawn) else "regex"


def bm25_lists(
    corpus: Mapping[str, str], queries: Mapping[str, str], tokens: Tokens, depth: int
) -> dict[str, list[str]]:
    """Return the best documents by BM25 for every query; those that share no word with it fill the list.

    Args:
        corpus: Texts by id.
        queries: Texts by id.
        tokens: Tokenisation of the texts.
        depth: Length of a list.

    Raises:
        BuildError: The corpus has no words, or the tokenizer is unknown.
    """
    check_tokens(tokens)
    cut, ids = TOKENIZERS[tokens], list(corpus)
    words = [cut(text) for text in corpus.values()]
    if not any(words):
        raise BuildError(f"No document has a word when cut by {tokens}; try another way.")
    index = BM25Index(words, k1=NANO_K1, b=NANO_B, method="robertson")
    place = _places(ids)
    lists = {}
    for query, text in queries.items():
        lists[query] = [ids[one] for one in np.lexsort((place, -index.scores(cut(text))))[:depth]]
    return lists


def _places(ids: Sequence[str]) -> np.ndarray:
    """Return the rank of each id by its digest."""
    order = sorted(range(len(ids)), key=lambda one: hashlib.sha256(ids[one].encode()).digest())
    places = np.empty(len(ids), dtype=np.int64)
    places[order] = np.arange(len(ids))
    return places
