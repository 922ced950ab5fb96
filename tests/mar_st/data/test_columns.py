"""Tests of the columns that triples become: draws and weights."""

from __future__ import annotations

import random

import numpy as np
import pytest
from datasets import Dataset

from mar_st.data.columns import column_texts, dataset_of, to_dataset
from mar_st.data.sequences import Texts, Triple, Triples, distinct_texts, numbered
from mar_st.errors import MarError

TRIPLES = [Triple("问零", ("答0", "答1"), ("错2", "错3")), Triple("问一", ("答3",), ("错0",))]


@pytest.mark.parametrize("negatives", [0, 1])
def test_no_triples_are_no_rows(negatives):
    data = to_dataset([], negatives=negatives, seed=0, weight=1.5)
    assert len(data) == 0
    assert data.column_names == ["query", "positive", "negative_1"][: 2 + negatives]


@pytest.mark.parametrize("negatives", [0, 1])
def test_the_instruction_goes_before_the_query_and_nothing_else(negatives):
    triples = [Triple("甲", ("乙",), ("丙",), "找："), Triple("丁", ("戊",), ("己",))]
    data = to_dataset(triples, negatives=negatives, seed=0)
    assert data["query"][:] == ["找：甲", "丁"]
    assert data["positive"][:] == ["乙", "戊"]


def test_texts_of_a_column_follow_the_rows_of_the_dataset():
    data = to_dataset(TRIPLES, negatives=0, seed=0)
    assert list(column_texts(data.select([2, 0, 2]), "positive")) == ["答3", "答0", "答3"]
    shuffled = data.shuffle(seed=1)
    assert list(column_texts(shuffled, "query")) == shuffled["query"][:]
    large = Dataset.from_dict({"query": ["é", ""]}).data.table
    assert list(column_texts(dataset_of(large, np.array([1, 0])), "query")) == ["", "é"]


def test_triples_without_negatives_are_left_out_with_a_warning(caplog):
    triples = [Triple("问二", ("答",)), *TRIPLES]
    with caplog.at_level("WARNING", logger="mar_st"):
        data = to_dataset(triples, negatives=1, seed=0, name="nli")
    assert data.to_dict() == to_dataset(TRIPLES, negatives=1, seed=0).to_dict()
    assert caplog.text.count("data nli: 1 of 3 queries") == 1
    assert to_dataset(triples, negatives=0, seed=0)["query"][0] == "问二"
    with pytest.raises(MarError, match="data nli: none of the 1 queries"):
        to_dataset(triples[:1], negatives=1, seed=0, name="nli")


ROWS = [
    Triple(
        f"问{number % 40}",
        tuple(f"答{number}-{part}" for part in range(number % 3 + 1)),
        tuple(f"错{number % 25}-{part}" for part in range(number % 4 + 1)),
    )
    for number in range(100)
]


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(("negatives", "positives"), [(0, "all"), (2, "all"), (2, "one"), (0, "one")])
def test_rows_are_drawn_as_by_hand(negatives, positives, weight):
    """One row after the other with Python's generator, as the draw is defined."""
    rng, drawn, left = random.Random(3), [], weight
    while left > 0:
        once = []
        for row in ROWS:
            kept = row.positives if positives == "all" else [rng.choice(row.positives)]
            for positive in kept:
                few = len(row.negatives) < negatives
                chosen = (rng.choices if few else rng.sample)(row.negatives, k=negatives)
                once.append((row.query, positive, *chosen))
        if left < 1:
            once = [once[n] for n in sorted(rng.sample(range(len(once)), round(left * len(once))))]
        drawn += once
        left -= 1
    data = to_dataset(ROWS, negatives=negatives, positives=positives, weight=weight, seed=3)
    assert [tuple(row.values()) for row in data] == drawn


def test_sequences_are_like_lists():
    texts = Texts.of([f"字{number}" for number in range(50)])
    assert (texts[3], texts[-1], list(texts[5:8]), len(texts)) == ("字3", "字49", ["字5", "字6", "字7"], 50)
    with pytest.raises(IndexError):
        texts[50]
    picked = texts.select(np.array([40, 2, 2]))
    assert list(Texts.joined([picked, ["新"], texts[:1]])) == ["字40", "字2", "字2", "新", "字0"]
    assert picked.lengths().tolist() == [3, 2, 2]
    triples = Triples.of(ROWS)
    assert triples[-1] == ROWS[-1]
    assert triples[3:50:7] == ROWS[3:50:7]
    assert list(triples.texts) == [t for row in ROWS for t in (row.query, *row.positives, *row.negatives)]


def test_equal_texts_get_one_number_in_order_of_first_occurrence():
    parts = [["乙", "甲", "乙"], [], ["丙", "甲", ""]]
    texts, places = numbered(*parts)
    assert list(texts) == ["乙", "甲", "丙", ""]
    assert [texts.take(numbers) for numbers in places] == parts
    assert distinct_texts(ROWS)[0] == list(dict.fromkeys(row.query for row in ROWS))
