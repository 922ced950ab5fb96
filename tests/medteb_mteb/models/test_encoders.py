"""MAR as an mteb encoder: routes and prompts."""

from __future__ import annotations

import logging

import mteb
import numpy as np
import pytest
from mteb.types import PromptType
from tests.medteb_mteb.models.encoding import encode

from mar_st.model.prompts import PUBLISHED_PROMPTS
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


@pytest.mark.parametrize("route", ["query-query", "query-document"])
def test_the_sts_route_chooses_the_encoder_of_second_sentences(mar, route):
    encoder = MAREncoder(mar, sts_route=route)
    first, second = ["感冒发烧吃什么药", "血压高怎么办"], ["孩子咳嗽有痰", "胃疼可以喝粥吗"]
    as_queries = mar.encode_queries(second, task="sts")
    as_documents = mar.encode_corpus(second)
    for _ in range(2):  # a second evaluation starts with first texts again
        vectors = encode(encoder, first, "MedTEBSTS")
        np.testing.assert_allclose(vectors, mar.encode_queries(first, task="sts"), atol=1e-6)
        vectors = encode(encoder, second, "MedTEBSTS")
        expected = as_queries if route == "query-query" else as_documents
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert np.abs(as_queries - as_documents).max() > 1e-3


def test_sts_recovers_from_a_failure_half_way(mar, monkeypatch):
    encoder = MAREncoder(mar, sts_route="query-document")
    texts = ["感冒发烧吃什么药"]
    encode(encoder, texts, "MedTEBSTS")
    with monkeypatch.context() as patch:
        patch.setattr("mar_st.encode.engine.Engine.encode", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(encoder, texts, "MedTEBSTS")
    vectors = encode(encoder, texts, "MedTEBSTS")
    np.testing.assert_allclose(vectors, mar.encode_queries(texts, task="sts"), atol=1e-6)


def test_the_sts_route_changes_the_score_of_mteb(mar, data_root):
    scores = {}
    for route in ("query-query", "query-document"):
        encoder = MAREncoder(mar, sts_route=route)
        task = mteb.get_task("MedTEBSTS")
        result = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False).task_results[0]
        scores[route] = result.scores["test"][0]["cosine_pearson"]
    assert scores["query-query"] != scores["query-document"]


def test_an_unknown_sts_route_lists_the_known(mar):
    with pytest.raises(ValueError, match="query-query, query-document"):
        MAREncoder(mar, sts_route="document-document")


def test_stored_prompts_are_all_understood_by_mteb(mar, caplog):
    with caplog.at_level(logging.WARNING):
        encoder = MAREncoder(mar)
    assert "not valid" not in caplog.text
    assert {name: encoder.model_prompts[name] for name in PUBLISHED_PROMPTS} == PUBLISHED_PROMPTS
