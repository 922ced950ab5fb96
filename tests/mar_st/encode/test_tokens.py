"""Tests that texts which are tokenised once give the features that the model's own module gives."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from mar_st.encode.engine import FrontEnd, distinct
from mar_st.model.encoders import load_encoder
from mar_st.text.texts import token_batches
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼吃什么药", "", "感冒", "高血压怎么办呢", "感冒", "�a b\n", "药" * 100]


@cache
def transformer(side: str = "right", max_length: int = 32) -> Any:
    torch.manual_seed(0)
    encoder = (make_config("gte"), make_tokenizer("query", side))
    return load_encoder(encoder, "query", max_length=max_length)[0]


def front(module: Any, **options: Any) -> FrontEnd:
    defaults = {"prompt": "", "task": None, "max_length": None, "rows": None}
    return FrontEnd(module, **{**defaults, **options})


@pytest.mark.parametrize("texts", [[], ["a"], ["b", "a", "b", "", "b", ""], ("é", "e\u0301", "é")])
def test_distinct_texts_and_their_places_give_the_texts_back(texts: Any) -> None:
    unique, inverse = distinct(texts)
    assert [unique[place] for place in inverse] == list(texts)
    assert unique == list(dict.fromkeys(texts))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prompt", ["", "头疼"])
def test_padded_features_are_those_of_the_module(side: str, prompt: str) -> None:
    module = transformer(side)
    end = front(module, prompt=prompt, rows=4)
    window = end.window(TEXTS, 80)
    assert len(window.lengths) == len(set(TEXTS))
    unique, _ = distinct(TEXTS)
    for rows in window.batches:
        features = end.features(window, rows)
        expected = module.preprocess([unique[row] for row in rows], prompt=prompt or None)
        assert features.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(features[name], value) if torch.is_tensor(value) else features[name] == value
    assert len(window.batches) > 1


def test_every_text_is_in_one_batch_and_long_ones_are_cut() -> None:
    window = front(transformer(), rows=2, max_length=8).window(TEXTS, 10_000)
    assert sorted(np.concatenate(window.batches).tolist()) == list(range(len(window.lengths)))
    assert max(map(len, window.batches)) == 2
    assert window.lengths[window.inverse].tolist() == [8, 2, 4, 8, 4, 7, 8]


def test_no_texts_are_a_window_without_batches() -> None:
    window = front(transformer()).window([], 100)
    assert (len(window.lengths), window.batches, window.inverse.tolist()) == (0, [], [])


def test_batches_hold_every_text_once_within_the_budget() -> None:
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
