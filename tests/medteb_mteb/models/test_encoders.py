"""MAR as an mteb encoder: routes and prompts."""

from __future__ import annotations

import logging

import numpy as np
from mteb.types import PromptType
from tests.medteb_mteb.models.encoding import encode

from mar_st.model.encoders import PUBLISHED_PROMPTS
from medteb_mteb.models.encoders import MAREncoder


def test_roles_take_their_routes_and_prompts(mar):
    encoder = MAREncoder(mar)
    texts = ["感冒发烧吃什么药", "胃疼可以喝粥吗", "血压高怎么办"]
    query = encode(encoder, texts, role=PromptType.query)
    np.testing.assert_allclose(query, mar.encode_queries(texts, task="retrieval"), atol=1e-6)
    rerank = encode(encoder, texts, "CMedQAv1-reranking", PromptType.query)
    np.testing.assert_allclose(rerank, mar.encode_queries(texts, task="rerank"), atol=1e-6)
    assert np.abs(query - rerank).max() > 1e-3  # the two instructions do differ
    document = encode(encoder, texts, role=PromptType.document)
    np.testing.assert_allclose(document, mar.encode_corpus(texts), atol=1e-6)
    plain = encode(encoder, texts, "TNews")
    np.testing.assert_allclose(plain, mar.encode(texts, task="query", prompt=""), atol=1e-6)
    assert np.abs(plain - query).max() > 1e-3


def test_documents_are_joined_as_mar_joins_them(mar):
    encoder = MAREncoder(mar)
    bodies, titles = ["多喝水", "少吃盐"], ["感冒", ""]
    vectors = encode(
        encoder, ["感冒 多喝水", "少吃盐"], role=PromptType.document, title=titles, body=bodies
    )  # fmt: skip
    expected = mar.encode_corpus([{"title": t, "text": b} for t, b in zip(titles, bodies, strict=True)])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_both_texts_of_sts_are_queries(mar):
    texts = ["感冒发烧吃什么药", "血压高怎么办"]
    vectors = encode(MAREncoder(mar), texts, "MedTEBSTS")
    np.testing.assert_allclose(vectors, mar.encode_queries(texts, task="sts"), atol=1e-6)


def test_stored_prompts_are_all_understood_by_mteb(mar, caplog):
    with caplog.at_level(logging.WARNING):
        encoder = MAREncoder(mar)
    assert "not valid" not in caplog.text
    assert {name: encoder.model_prompts[name] for name in PUBLISHED_PROMPTS} == PUBLISHED_PROMPTS
