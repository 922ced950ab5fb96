"""Tests of what every query encoder offers: its name, origin, side of truncation and prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mar_st.online.protocol import EncoderError, encoder_origin, find_prompt, truncation_side


@pytest.mark.parametrize(
    ("prompts", "name", "expected"),
    [
        ({"query": "问：", "sts": "似："}, None, "问："),
        ({"query": "问：", "sts": "似："}, "sts", "似："),
        ({"sts": "似："}, None, ""),  # no other prompt takes the place of that of queries
        ({"query": None}, None, ""),
        ({"document": None}, "document", ""),
    ],
)
def test_a_prompt_is_found_by_its_name(prompts, name, expected):
    assert find_prompt(prompts, name) == expected


@pytest.mark.parametrize(
    ("prompts", "name", "known"), [({"query": "", "sts": ""}, "nix", "query, sts"), ({}, "query", "none")]
)
def test_an_unknown_prompt_is_refused_with_those_there_are(prompts, name, known):
    with pytest.raises(EncoderError, match=f"no prompt '{name}'; the model has {known}"):
        find_prompt(prompts, name)


def test_an_encoder_that_states_no_origin_is_its_own():
    assert encoder_origin(SimpleNamespace(identity="int8", origin="modules")) == "modules"
    assert encoder_origin(SimpleNamespace(identity="int8", origin=None)) == "int8"
    assert encoder_origin(SimpleNamespace(identity="int8")) == "int8"
    assert encoder_origin(None) is None


def test_texts_are_cut_on_the_right_unless_an_encoder_says_otherwise():
    assert truncation_side(SimpleNamespace(truncation="left")) == "left"
    assert truncation_side(SimpleNamespace(truncation=None)) == "right"
    assert truncation_side(SimpleNamespace()) == "right"
