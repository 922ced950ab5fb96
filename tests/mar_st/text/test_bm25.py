from __future__ import annotations

import math

import numpy as np
import pytest

from mar_st.text.words import K1, B, BM25Index

DOCUMENTS = [["感冒", "发烧", "发烧"], ["高血压"], [], ["感冒", "咳嗽", "怎么办", "感冒"]]


def test_scores_are_those_of_the_formula():
    index = BM25Index(DOCUMENTS)
    mean = np.mean([len(document) for document in DOCUMENTS])

    def score(document, word):
        often, holding = document.count(word), sum(word in other for other in DOCUMENTS)
        idf = math.log(1 + (len(DOCUMENTS) - holding + 0.5) / (holding + 0.5))
        return idf * often / (often + K1 * (1 - B + B * len(document) / mean))

    query = ["感冒", "发烧", "感冒", "没有的词"]
    expected = [sum(score(document, word) for word in query) for document in DOCUMENTS]
    scores = index.scores(query)
    assert scores.dtype == np.float32
    assert scores == pytest.approx(expected, rel=1e-5)
    assert scores[1] == scores[2] == 0


def test_scores_are_zero_without_shared_words():
    assert BM25Index(DOCUMENTS).scores(["没有的词"]).tolist() == [0, 0, 0, 0]
    assert BM25Index(DOCUMENTS).scores([]).tolist() == [0, 0, 0, 0]
    assert BM25Index([[], []]).scores(["感冒"]).tolist() == [0, 0]
    assert BM25Index([]).scores(["感冒"]).shape == (0,)
