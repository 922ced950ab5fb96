"""Hard negatives: one of the texts nearest to the positive."""

from __future__ import annotations

import numpy as np
import pytest

from medteb_mteb.curation.relatives import negatives

WORDS = ["fever", "cough", "rash", "heart", "skin", "liver", "bone", "lung"]


@pytest.mark.parametrize("by", ["all-MiniLM-L6-v2", "bm25"])
def test_negatives_are_of_the_nearest_and_never_equal(monkeypatch, by):
    texts = ["a fever", "a fever", "a fever and cough", "one heart", "the heart one", "skin"]
    words = sorted({word for text in texts for word in text.split()})
    vectors = np.array([[word in text.split() for word in words] for text in texts], np.float32)
    monkeypatch.setattr(
        negatives, "_encode", lambda _: vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    )
    chosen = negatives.hard_negatives(texts, 1, by)
    assert (chosen[0], chosen[1], chosen[3], chosen[4]) == (2, 2, 4, 3)
    assert chosen == negatives.hard_negatives(texts, 1, by)
    vectors = vectors[:2]
    assert negatives.hard_negatives(["one", "one"], 3, by) == [None, None]


def test_texts_with_equal_scores_are_taken_in_their_order():
    others = [f"fever {letter * 3}" for letter in "abcdefghij"]
    assert negatives.hard_negatives(["fever cough", *others], 1, "bm25") == [1] + [0] * 10


def test_texts_whose_neighbours_are_all_of_their_group_get_another_text():
    texts = [f"a fever of type {kind}" for kind in range(8)] + ["skin"]
    chosen = negatives.hard_negatives(texts, 1, "bm25", groups=["same"] * 8 + ["other"])
    assert chosen[:8] == [8] * 8
    assert chosen[8] in range(8)


def test_a_negative_is_drawn_among_the_nearest_texts():
    texts = [f"{word} {word} {number}" for word in WORDS for number in range(5)]
    chosen = negatives.hard_negatives(texts, 4, "bm25")
    assert all(texts[place].split()[0] == texts[other].split()[0] for place, other in enumerate(chosen))
    assert all(place != other for place, other in enumerate(chosen))
    assert {other % 5 for other in chosen} == set(range(5))  # not always the first one
    assert chosen == negatives.hard_negatives(texts, 4, "bm25")


def test_vectors_are_compared_with_all_texts_in_batches(monkeypatch):
    places = np.random.default_rng(0).permutation(40)
    angles = 0.03 * places + 0.0003 * places**2  # no two neighbours are equally near
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts = [str(number) for number in range(40)]
    monkeypatch.setattr(negatives, "_encode", lambda _: vectors)
    whole = negatives.hard_negatives(texts, 2, negatives.MODEL)
    monkeypatch.setattr(negatives, "_BATCH_ROWS", 7)
    assert negatives.hard_negatives(texts, 2, negatives.MODEL) == whole
    assert all(abs(angles[place] - angles[other]) < 0.11 for place, other in enumerate(whole))
