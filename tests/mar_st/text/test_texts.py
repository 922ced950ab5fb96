"""The form in which texts are compared by their characters, and batches of texts by length."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.text.texts import normalise, token_batches


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("头疼，吃什么药？", "头疼吃什么药"),
        ("ＡＢＣ　１２３％", "abc123"),  # full width
        ("Vitamin B12 / 5 mg", "vitaminb125mg"),
        ("①㎎ ﬁ", "1mgfi"),
        ("e\u0301", "\u00e9"),  # composed
        (" \n\t——😀", ""),
        ("", ""),
    ],
)
def test_letters_and_digits_are_kept_in_lower_case_and_normal_width(text, expected):
    assert normalise(text) == expected


@pytest.mark.parametrize("text", ["ＡＢＣ头疼!", "Straße ΣΑΣ", "ǅ ½ x²"])
def test_a_normalised_text_stays_as_it_is(text):
    assert normalise(normalise(text)) == normalise(text)
    assert normalise(f" {text}。") == normalise(text)


def test_batches_hold_every_text_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    batches = token_batches(lengths, 500)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(300))
    assert (np.diff(lengths[order]) <= 0).all()
    assert max(len(rows) * lengths[rows].max() for rows in batches) <= 500
    assert len(batches) <= 1.25 * lengths.sum() / 500  # and the budget is used
    assert max(map(len, token_batches(lengths, 500, rows=4))) == 4
    assert [rows.tolist() for rows in token_batches([5, 200, 7], 100)] == [[1], [2, 0]]
    assert [rows.tolist() for rows in token_batches([10, 1, 1, 1], 13)] == [[0], [1, 2, 3]]
    assert token_batches([], 100) == []
