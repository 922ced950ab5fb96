"""A MAR in every dtype, through its own class and through plain sentence-transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from mar_st import MAR
from mar_st.model.encoders import load_encoder

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TEXTS = ["头疼吃药好", "感冒发热咳嗽医生你好", "高血压吃什么"]


def encoders(query_source, document_source):
    torch.manual_seed(0)
    return load_encoder(query_source, "query"), load_encoder(document_source, "document")


def build(query_source, document_source, query_dtype, document_dtype, *, renormalise=True):
    query, document = encoders(query_source, document_source)
    query[0].to(query_dtype)
    document[0].to(document_dtype)
    return MAR.from_modules(query, document, dim=32, renormalise=renormalise, device="cpu")


@pytest.fixture
def exact(query_source, document_source):
    """Vectors of both sides in float32."""
    model = build(query_source, document_source, torch.float32, torch.float32)
    return model.encode_queries(TEXTS), model.encode_corpus(TEXTS)


def assert_close(vectors, exact):
    """Equal to what half precision of the encoder leaves, of length 1 and float32."""
    assert vectors.dtype == np.float32
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(vectors, axis=1)
    assert ((vectors * exact).sum(axis=1) / norms > 0.999).all()


@pytest.mark.thorough(but=["query_dtype1-document_dtype0-False"])
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("document_dtype", DTYPES)
@pytest.mark.parametrize("query_dtype", [torch.float32, torch.bfloat16])
def test_stored_dtypes_encode_everywhere(
    query_source, document_source, query_dtype, document_dtype, renormalise, tmp_path
):
    exact = build(query_source, document_source, torch.float32, torch.float32, renormalise=renormalise)
    model = build(query_source, document_source, query_dtype, document_dtype, renormalise=renormalise)
    model.save_pretrained(str(tmp_path))
    for loaded in (
        model,
        MAR.from_pretrained(tmp_path, device="cpu"),
        MAR.from_pretrained(tmp_path, device="cpu", routes="document"),
        SentenceTransformer(str(tmp_path), device="cpu"),
    ):
        vectors = loaded.encode_document(TEXTS, prompt="")
        assert_close(np.float32(vectors), exact.encode_corpus(TEXTS))
        if renormalise:
            assert np.abs(np.linalg.norm(np.float32(vectors), axis=1) - 1).max() < 5e-3
    for loaded in (MAR.from_pretrained(tmp_path, device="cpu", routes="query"), model):
        assert_close(loaded.encode_queries(TEXTS), exact.encode_queries(TEXTS))


@pytest.mark.thorough(but=["stored0-dtype2"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_a_dtype_can_be_requested(query_source, document_source, exact, stored, dtype, tmp_path):
    build(query_source, document_source, stored, stored).save_pretrained(str(tmp_path))
    for kind in (SentenceTransformer, MAR.from_pretrained):
        loaded = kind(str(tmp_path), device="cpu", model_kwargs={"dtype": dtype})
        assert_close(np.float32(loaded.encode_document(TEXTS, prompt="")), exact[1])
        loaded = kind(str(tmp_path), device="cpu").to(dtype)
        assert_close(np.float32(loaded.encode_document(TEXTS, prompt="")), exact[1])


def test_tensors_of_both_routes_can_be_compared(query_source, document_source):
    model = build(query_source, document_source, torch.float32, torch.bfloat16)
    queries = model.encode_queries(TEXTS, convert_to_tensor=True)
    assert model.similarity(queries, model.encode_corpus(TEXTS, convert_to_tensor=True)).shape == (3, 3)
    several = model.encode_corpus(TEXTS, convert_to_numpy=False)
    assert {vector.dtype for vector in several} == {torch.float32}


def test_a_projection_has_the_dtype_of_its_encoder(query_source, document_source):
    document = load_encoder(document_source, "document")
    document[0].to(torch.bfloat16)
    query = load_encoder(query_source, "query", projection=48)
    model = MAR.from_modules(query, document, dim=48, device="cpu")
    assert {p.dtype for module in model.route_modules("query") for p in module.parameters()} == {
        torch.float32
    }
    assert model.encode_queries(TEXTS).shape == model.encode_corpus(TEXTS).shape == (3, 48)
    query[0].to(torch.bfloat16)
    again = MAR.from_modules(query, document, dim=48, device="cpu")
    assert again.encode_queries(TEXTS).shape == (3, 48)


@pytest.mark.thorough
def test_a_model_that_the_stock_trainer_tuned_is_a_mar(query_source, document_source, tmp_path):
    build(query_source, document_source, torch.float32, torch.float32).save_pretrained(str(tmp_path / "mar"))
    model = SentenceTransformer(str(tmp_path / "mar"), device="cpu")
    rows = Dataset.from_dict({"anchor": TEXTS * 4, "positive": [text[::-1] for text in TEXTS] * 4})
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / "run"), max_steps=20, learning_rate=1e-3, report_to="none",
            per_device_train_batch_size=3, router_mapping={"anchor": "query", "positive": "document"},
            use_cpu=True, save_strategy="no",
        ),
        train_dataset=rows,
        loss=MultipleNegativesRankingLoss(model),
    ).train()  # fmt: skip
    vectors = model.encode_document(TEXTS)
    model.save_pretrained(str(tmp_path / "tuned"))
    tuned = MAR.from_pretrained(tmp_path / "tuned", device="cpu")  # its cut is a linear layer like others
    np.testing.assert_allclose(tuned.encode_corpus(TEXTS), vectors, atol=1e-5)
    start = MAR.from_pretrained(tmp_path / "mar", device="cpu")
    assert np.abs(start.encode_corpus(TEXTS) - vectors).max() > 1e-3  # the encoders did learn


def test_texts_without_a_role_are_an_error_in_new_models(mar, queries, tmp_path):
    mar.save_pretrained(str(tmp_path))
    for loaded in (mar, MAR.from_pretrained(tmp_path), SentenceTransformer(str(tmp_path))):
        for options in ({}, {"prompt_name": "query"}, {"prompt": "x"}):
            with pytest.raises(ValueError, match="task="):
                loaded.encode(queries, **options)
        assert loaded.encode(queries, task="query").shape == (3, 32)
    online = MAR.from_pretrained(tmp_path, routes="query")
    with pytest.raises(ValueError, match="task="):
        online.encode(queries)


def test_the_documents_weights_are_saved_in_their_dtype(query_source, document_source, tmp_path):
    build(query_source, document_source, torch.float32, torch.bfloat16).save_pretrained(str(tmp_path))
    (path,) = tmp_path.glob("document_0_*/model.safetensors")
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.bfloat16}
    config = json.loads((path.parent / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
