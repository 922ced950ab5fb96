"""A real cross-encoder with random weights, from a folder."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification

from mar_st.errors import MarError
from mar_st.model.reranker import Reranker
from tests.mar_st.conftest import make_config, make_tokenizer, save_cross_encoder

PAIRS = [("头疼吃什么药", text) for text in ("感冒发热", "咳嗽怎么办", "高血压医生你好", "头疼")]


def test_scores_are_those_of_the_cross_encoder(tmp_path):
    folder = save_cross_encoder(tmp_path / "one", 1)
    expected = CrossEncoder(str(folder)).predict(PAIRS)
    reranker = Reranker(folder, batch_size=2)
    np.testing.assert_allclose(reranker.score(PAIRS), expected, atol=1e-6)
    assert len(set(expected.round(6))) == len(PAIRS)
    assert reranker.name == str(folder)
    assert reranker.score([]).shape == (0,)


def test_several_scores_per_pair_are_refused(tmp_path):
    with pytest.raises(MarError, match=r"scores of shape \(3,\) per pair; one is needed"):
        Reranker(save_cross_encoder(tmp_path / "three", 3)).score(PAIRS)


def test_errors_name_a_missing_model(tmp_path):
    with pytest.raises(MarError, match="nothing"):
        Reranker(tmp_path / "nothing").score(PAIRS)


def test_a_tokenizer_without_a_padding_token_gets_one(tmp_path):
    config = make_config("gpt2")
    config.num_labels, config.pad_token_id = 1, None
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    tokenizer = make_tokenizer("document")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    scores = Reranker(tmp_path, batch_size=4).score(PAIRS)
    np.testing.assert_allclose(scores, Reranker(tmp_path, batch_size=1).score(PAIRS), atol=1e-6)
    assert len(set(scores.round(6))) == len(PAIRS)
