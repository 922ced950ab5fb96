"""Words of a text, for BM25 and for highlighting the terms of a query in hits."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mar_st.files import user_cache
from mar_st.text.texts import normalise

if TYPE_CHECKING:
    from collections.abc import Callable


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
