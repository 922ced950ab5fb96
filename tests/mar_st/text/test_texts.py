"""The form in which texts are compared by their characters."""

from __future__ import annotations

import pytest

from mar_st.text.texts import normalise


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
