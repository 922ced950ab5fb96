"""Tests of BM25 from word counts: scores are those of bm25s for the words themselves."""

from __future__ import annotations

from collections import Counter

import bm25s
import numpy as np
import pytest

from mar_st.index.counted import CountedBM25, CountedWords
from mar_st.text.bm25 import K1, B

CORPORA = {
    "usual": ["头 疼 吃 药", "头 头 头", "发 热 吃 药 吃", "咳 嗽"],
    "empty documents": ["", "头 疼", "", "头", ""],
    "one document": ["头 疼 头"],
    "a word everywhere": ["药", "药 药", "药 疼"],
}


def _counted(corpus):
    """Words of a corpus, counted one document after the other."""
    vocabulary, pairs = {}, []
    for number, document in enumerate(corpus):
        for word, times in Counter(document.split()).items():
            pairs.append((vocabulary.setdefault(word, len(vocabulary)), number, times))
    words, documents, times = (np.array(column) for column in zip(*pairs, strict=True))
    lengths = np.array([len(document.split()) for document in corpus], dtype=np.int64)
    return CountedWords(
        (words.astype(np.int32), documents.astype(np.int32), times.astype(np.float32), lengths), vocabulary
    )


def _index(corpus, mean=None):
    words = _counted(corpus)
    index = CountedBM25(float(words.ids[3].mean()) if mean is None else mean)
    index.index(words, create_empty_token=False, show_progress=False)
    return index


@pytest.mark.parametrize("name", CORPORA)
def test_scores_are_those_of_bm25s(name):
    corpus = CORPORA[name]
    plain = bm25s.BM25(method="lucene", k1=K1, b=B)
    plain.index([document.split() for document in corpus], show_progress=False)
    index, words = _index(corpus), _counted(corpus).vocab
    for query in (*([word] for word in words), list(words)):
        scores, expected = (one.get_scores(query) for one in (index, plain))
        np.testing.assert_allclose(scores, expected, rtol=1e-6)
        assert (scores > 0).any()


def test_a_score_is_above_zero_exactly_where_the_word_is():
    index = _index(CORPORA["usual"])
    np.testing.assert_array_equal(index.get_scores(["吃"]) > 0, [True, False, True, False])


def test_a_shorter_mean_lowers_the_scores_of_long_documents():
    """Segments of one index are all compared with the mean length of the first."""
    own, short = _index(CORPORA["usual"]), _index(CORPORA["usual"], mean=1.0)
    assert (short.get_scores(["吃"])[[0, 2]] < own.get_scores(["吃"])[[0, 2]]).all()
