"""Rows of English MedTEB: draws out of streams, labels, pairs with negatives."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import rows as rows_module
from medteb_mteb.curation.relatives.rows import Draw, distinct, labelled, pair_rows, retrieval_rows

TEXTS = [f"text {number}" for number in range(300)]


def drawn(most, texts, number=None):
    draw = Draw(most)
    for text in texts:
        draw.add(text, text)
    return draw.items(number)


def test_a_draw_is_a_part_of_a_larger_one_in_the_order_of_the_stream():
    large, small = drawn(200, TEXTS), drawn(40, TEXTS)
    assert (len(large), len(small)) == (200, 40)
    assert small == [text for text in large if text in small]
    assert large == [text for text in TEXTS if text in large]
    assert drawn(200, TEXTS, 40) == small
    assert drawn(999, TEXTS) == TEXTS
    assert drawn(0, TEXTS) == drawn(9, TEXTS, 0) == []


def test_a_draw_does_not_depend_on_the_order_of_the_stream_and_is_not_its_beginning():
    assert sorted(drawn(40, TEXTS)) == sorted(drawn(40, reversed(TEXTS)))
    assert drawn(40, TEXTS) != TEXTS[:40]


def test_equal_texts_count_once_even_if_they_were_dropped_before():
    draw = Draw(20)
    for number, text in enumerate([*TEXTS, *TEXTS]):
        draw.add(text, number)
    assert len(draw) == 20
    assert max(draw.items()) < len(TEXTS)


def test_items_that_cannot_be_compared_and_texts_that_cannot_be_encoded_are_drawn():
    draw = Draw(2)
    for text in ("a", "\ud800", "b"):
        draw.add(text, {"text": text})
    assert len(draw.items()) == 2


def test_a_text_of_two_labels_has_the_first():
    rows = labelled("task", {"pain": ["a", "b", "a"], "fever": ["b", "c"]}, "")
    assert rows == [
        {"text": "a", "label": "pain"},
        {"text": "b", "label": "pain"},
        {"text": "c", "label": "fever"},
    ]


@pytest.mark.parametrize("texts", [[], ["a"]])
def test_a_label_without_a_text_of_its_own_is_refused(texts):
    with pytest.raises(BuildError, match="task: nothing was found for cough, fever; fetch more"):
        labelled("task", {"pain": ["a"], "fever": texts, "cough": iter(())}, "fetch more")


def test_too_many_labelled_texts_are_sampled_in_their_order(monkeypatch):
    everything = labelled("task", {"x": TEXTS}, "")
    monkeypatch.setattr(rows_module, "MAX_LABELLED_ROWS", 50)
    sample = labelled("task", {"x": TEXTS}, "")
    assert len(sample) == 50
    assert sample == [row for row in everything if row in sample]
    assert sample == labelled("task", {"x": TEXTS}, "") != everything[:50]


def test_pairs_with_an_empty_text_and_repeated_ones_are_left_out():
    pairs = [("b", "1"), ("a", ""), ("", "1"), ("a", "1"), ("b", "1"), ("b", "2")]
    assert distinct(pairs) == [("b", "1"), ("a", "1"), ("b", "2")]


def test_rows_of_retrieval_end_at_the_published_number(monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_ROWS", 2)
    assert retrieval_rows([("a", "1"), ("b", "2"), ("c", "3")]) == [
        {"query": "a", "corpus": "1"},
        {"query": "b", "corpus": "2"},
    ]


def test_every_positive_has_a_negative_of_another_text_and_group(monkeypatch):
    pairs = [(f"title {i}", f"fever of type {i}") for i in range(6)]
    groups = ["x", "x", "x", "y", "y", "z"]
    rows = pair_rows(pairs, 2, "bm25", groups)
    assert [(row["sentence1"], row["sentence2"]) for row in rows[::2]] == pairs
    assert [row["label"] for row in rows] == [1, 0] * 6
    group_of = dict(zip([second for _, second in pairs], groups, strict=True))
    for right, wrong in zip(rows[::2], rows[1::2], strict=True):
        assert wrong["sentence1"] == right["sentence1"]
        assert group_of[wrong["sentence2"]] != group_of[right["sentence2"]]
    monkeypatch.setattr(rows_module, "MAX_ROWS", 8)
    fewer = pair_rows(pairs, 2, "bm25", groups)
    assert [row["sentence1"] for row in fewer[::2]] == [f"title {i}" for i in range(4)]


@pytest.mark.parametrize("pairs", [[], [("a", "same"), ("b", "same")]])
def test_pairs_without_any_negative_give_no_rows(pairs):
    assert pair_rows(pairs, 2, "bm25") == []
