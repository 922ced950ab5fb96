"""MAR as an mteb encoder: routes, prompts and precisions."""

from __future__ import annotations

import logging

import mteb
import numpy as np
import pytest
from mteb.types import PromptType
from tests.medteb_mteb.models.encoding import encode, loader

from mar_st.model.prompts import PUBLISHED_PROMPTS
from medteb_mteb.models.encoders import MAREncoder, scorable


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


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_lower_precisions_are_those_of_sentence_transformers(mar, precision, data_root):
    encoder, texts = MAREncoder(mar), ["感冒发烧吃什么药", "血压高怎么办", "胃疼可以喝粥吗"]
    where = {"task_metadata": mteb.get_task("MedTEBRetrieval").metadata}
    vectors = encoder.encode(
        loader(texts), hf_split="test", hf_subset="default", prompt_type=PromptType.document,
        precision=precision, **where,
    )  # fmt: skip
    expected = mar.encode_document(texts, precision=precision)
    assert vectors.dtype == np.float32
    if "binary" in precision:
        np.testing.assert_array_equal(vectors > 0, mar.encode_document(texts) > 0)
        assert set(np.unique(vectors)) == {-1.0, 1.0}
        assert expected.shape[1] * 8 == vectors.shape[1]
    else:
        assert np.abs(vectors - expected).max() <= 1  # one step: batches round otherwise
        assert len(np.unique(vectors)) > 3
    for name in ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"):
        if precision == "ubinary":
            continue  # mteb's own list of precisions has no such one
        result = mteb.evaluate(
            encoder, mteb.get_task(name), cache=None, encode_kwargs={"precision": precision},
            show_progress_bar=False,
        )  # fmt: skip
        # Sixteen random bits may give every pair one cosine, which has no correlation.
        assert np.isfinite(result.task_results[0].get_score()) or (name, precision) == ("MedTEBSTS", "binary")


SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], (3, 16)).astype(np.float32)


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_each_packed_bit_becomes_a_sign(precision):
    packed = np.packbits(SIGNS > 0, axis=-1)
    if precision == "binary":
        packed = (packed.astype(np.int16) - 128).astype(np.int8)
    unpacked = scorable(packed, precision)
    assert unpacked.dtype == np.float32
    np.testing.assert_array_equal(unpacked, SIGNS)


@pytest.mark.parametrize(("precision", "dtype"), [("int8", np.int8), ("uint8", np.uint8)])
def test_integers_keep_their_values_as_floats(precision, dtype):
    limits = np.iinfo(dtype)
    vectors = np.array([[limits.min, limits.max, 1]], dtype=dtype)
    floats = scorable(vectors, precision)
    assert floats.dtype == np.float32
    assert floats.tolist() == [[limits.min, limits.max, 1]]


@pytest.mark.parametrize("precision", [None, "float32"])
def test_vectors_of_full_precision_are_left_alone(precision):
    assert scorable(SIGNS, precision) is SIGNS
