"""Tests of the detection of equal texts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mar_st.data import DataError, Triple, distinct_texts, numbered
from mar_st.data.distinct import digests, distinct
from mar_st.data.sequences import Texts

#: Texts that look alike and are not equal.
ALIKE = ["e\u0301", "\u00e9", "E\u0301", "", " ", "a", "a\0", "\0a", "a ", "а", "\ufeffa", "ａ", "a\u200b"]


def test_distinct_texts_come_once_each_in_the_order_of_their_first_occurrence():
    triples = [
        Triple("问零", ("文1", "文0"), ("文2",)),
        Triple("问一", ("文3",), ("文1",)),
        Triple("问零", ("文2",)),
    ]
    queries, documents = distinct_texts(triples)
    assert queries == ["问零", "问一"]
    assert documents == ["文1", "文0", "文2", "文3"]


def test_texts_that_look_alike_are_kept_apart():
    texts = [*ALIKE, *reversed(ALIKE)]
    assert list(distinct(texts)) == ALIKE
    assert len(np.unique(digests(texts), axis=0)) == len(ALIKE)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_give_the_texts_of_every_sequence_back(seed):
    rng = random.Random(seed)
    parts = [[rng.choice(ALIKE) * rng.randint(1, 3) for _ in range(number)] for number in (40, 0, 25, 1)]
    texts, places = numbered(*parts)
    assert [[texts[number] for number in numbers.tolist()] for numbers in places] == parts
    assert list(texts) == list(dict.fromkeys(text for part in parts for text in part))


def test_equal_texts_of_different_sequences_have_one_number():
    rows = Texts.of(["甲", "乙", "丙"]).select(np.array([2, 0]))
    texts, (first, second) = numbered(rows, ["乙", "甲"])
    assert list(texts) == ["丙", "甲", "乙"]
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 1])


def test_digests_depend_on_the_text_alone():
    whole = Texts.of([f"文{number}" for number in range(100)])
    for rows in (np.array([99]), np.arange(100)[::-1], np.array([5, 5])):
        np.testing.assert_array_equal(digests(whole.select(rows)), digests(whole)[rows])
    assert digests([]).shape == (0, 2)


@pytest.mark.parametrize("texts", [[], [""], ["甲"] * 5])
def test_few_texts_are_no_special_case(texts):
    assert list(distinct(texts)) == texts[:1]
    assert list(distinct()) == []


def test_a_text_that_is_not_unicode_is_refused():
    with pytest.raises(DataError, match=r"'a\\ud800' is not valid Unicode"):
        distinct(["a", "a\ud800"])
