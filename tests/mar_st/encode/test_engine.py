"""The engine gives the vectors that sentence-transformers gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.encode.engine import Engine, FrontEnd, distinct
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.encode.encoders import symmetric, texts


@pytest.mark.thorough(but=["gte", "qwen3", "bert"])
@pytest.mark.parametrize("kind", ["gte", "bert", "xlm-roberta", "modernbert", "qwen3", "llama", "gpt_neox"])
def test_vectors_are_those_of_sentence_transformers(kind: str) -> None:
    model = symmetric(kind)
    vectors = Engine(model, tokens=96, threads=2).encode(texts())

    expected = model.encode(texts(), batch_size=7)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert np.ptp(expected, axis=0).max() > 0.01  # texts differ
    assert (vectors[-1] == vectors[0]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_poolings_and_prompts_give_the_vectors_of_sentence_transformers(pooling: str) -> None:
    model = symmetric("gte", pooling=pooling)
    model[1].include_prompt = False
    engine = Engine(model, prompt="头疼", tokens=64)

    np.testing.assert_allclose(engine.encode(texts()), model.encode(texts(), prompt="头疼"), atol=2e-6)


def test_a_mar_encodes_by_role_and_leaves_the_model_as_it_was(mar: MAR) -> None:
    mar.train()

    documents, queries = Engine(mar), Engine(mar, "query")

    encoded, asked = documents.encode(texts()), queries.encode(texts())
    assert mar.training
    np.testing.assert_allclose(encoded, mar.encode_corpus(texts()), atol=2e-6)
    np.testing.assert_allclose(asked, mar.encode_queries(texts()), atol=2e-6)
    assert queries.prompt == mar.prompts["query"] != documents.prompt == ""


def test_a_matryoshka_dimension_is_brought_to_length_one(mar: MAR) -> None:
    engine = Engine(mar, dim=8)
    vectors = engine.encode(texts())

    cut = mar.encode_corpus(texts())[:, :8]
    np.testing.assert_allclose(vectors, cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=2e-6)
    assert engine.normalised
    assert (engine.dim, Engine(mar).dim) == (8, 32)


def test_a_mar_that_cuts_after_normalisation_keeps_its_scale(query_source: Any, document_source: Any) -> None:
    mar = MAR.from_encoders(query_source, document_source, dim=32, renormalise=False, device="cpu")
    engine = Engine(mar, dim=8)

    np.testing.assert_allclose(engine.encode(texts()), mar.encode_corpus(texts())[:, :8], atol=2e-6)
    assert not engine.normalised
    assert engine.similarity == "dot"


def test_truncate_dim_of_the_model_does_not_renormalise(mar: MAR) -> None:
    mar.truncate_dim = 8
    engine = Engine(mar)

    np.testing.assert_allclose(engine.encode(texts()), mar.encode_corpus(texts()), atol=2e-6)
    assert (engine.dim, engine.normalised) == (8, False)


def test_too_many_dimensions_are_refused(mar: MAR) -> None:
    with pytest.raises(MarError, match="32 dimensions; 33"):
        Engine(mar, dim=33)


def test_long_texts_are_cut_like_those_of_the_model() -> None:
    model = symmetric("gte", max_length=16)
    vectors = Engine(model).encode(["头疼" * 50, "头疼" * 7])
    np.testing.assert_allclose(vectors, model.encode(["头疼" * 50, "头疼" * 7]), atol=2e-6)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=2e-6)
    shorter = Engine(model, max_length=8).encode(["头疼" * 50, "头疼" * 3])
    np.testing.assert_allclose(shorter[0], shorter[1], atol=2e-6)
    assert np.abs(shorter[0] - vectors[0]).max() > 1e-3


def test_bytes_depend_on_the_window_and_not_on_threads() -> None:
    model = symmetric("gte")
    one = Engine(model, tokens=64, threads=1).encode(texts())
    assert (Engine(model, tokens=64, threads=3).encode(texts()) == one).all()
    assert (Engine(model, tokens=64, threads=3).encode([*texts(), *texts()], window=62)[:62] == one).all()


def test_half_precision_is_near_and_is_pooled_in_full() -> None:
    model = symmetric("gte")
    expected = model.encode(texts())
    model[0].model.to(torch.bfloat16)

    vectors = Engine(model).encode(texts())

    cosine = (vectors * expected).sum(axis=1)
    assert 0.999 < cosine.min() < 0.9999999
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("renormalise", [True, False])
def test_the_cut_of_a_mar_in_half_precision_loses_nothing(
    renormalise: bool, query_source: Any, document_source: Any
) -> None:
    options: Any = {"model_kwargs": {"dtype": torch.bfloat16}, "renormalise": renormalise}
    mar = MAR.from_encoders(query_source, document_source, device="cpu", **options)
    assert mar.dtype == torch.bfloat16

    vectors = Engine(mar).encode(texts())

    full = Engine(mar.encoder("document")).encode(texts())[:, : vectors.shape[1]]
    expected = full / np.linalg.norm(full, axis=1, keepdims=True) if renormalise else full
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_autocast_with_small_batches_matches_torch() -> None:
    model = symmetric("gte")
    with torch.autocast("cpu", torch.bfloat16):
        expected = model.encode(texts(), batch_size=1)
    vectors = Engine(model, autocast=True, rows=2, threads=2).encode(texts())
    np.testing.assert_allclose(vectors, expected, atol=5e-3)
    assert np.abs(vectors - model.encode(texts())).max() > 1e-4
    assert not torch.is_autocast_enabled("cpu")


def test_other_first_modules_go_through_their_own_preprocessing() -> None:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(0)
    static = StaticEmbedding(make_tokenizer("query"), embedding_dim=16)
    model = SentenceTransformer(modules=[static], device="cpu")
    np.testing.assert_allclose(Engine(model, tokens=40).encode(texts()), model.encode(texts()), atol=2e-6)


def test_no_texts_give_no_vectors(mar: MAR) -> None:
    assert Engine(mar).encode([]).shape == (0, 32)
    assert [vectors.shape for _, vectors in Engine(mar).stream([(0, [])])] == [(0, 32)]


@pytest.mark.parametrize(("kind", "most"), [("bert", 64), ("xlm-roberta", 63)])
def test_more_tokens_than_positions_are_refused(kind: str, most: int) -> None:
    model = symmetric(kind)
    assert Engine(model, max_length=most).encode(["头" * 200]).shape == (1, 64)
    with pytest.raises(MarError, match=f"positions for {most} tokens; max_length {most + 1}"):
        Engine(model, max_length=most + 1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("prompt", ["", "头疼"])
def test_padded_features_are_those_of_the_module(side: str, prompt: str) -> None:
    given = ["头疼吃什么药", "", "感冒", "高血压怎么办呢", "感冒", "�a b\n", "药" * 100]
    module: Any = load_encoder((make_config("gte"), make_tokenizer("query", side)), "query", max_length=32)[0]
    end = FrontEnd(module, prompt=prompt, task=None, max_length=None, rows=4)
    window = end.window(given, 80)
    assert len(window.lengths) == len(set(given))
    unique, _ = distinct(given)
    for rows in window.batches:
        features = end.features(window, rows)
        expected = module.preprocess([unique[row] for row in rows], prompt=prompt or None)
        assert features.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(features[name], value) if torch.is_tensor(value) else features[name] == value
    assert len(window.batches) > 1
