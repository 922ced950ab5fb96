from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st.data.sequences import Triple
from mar_st.errors import MarError
from mar_st.model.adapters import has_adapter
from mar_st.stages.contrastive import train_contrastive
from tests.mar_st.stages.helpers import TRIPLES, apart, changed, encoder, settings, source, stage, weights


def _train(folder, model=None, sources=None, prompts=None, **fields):
    model = model or encoder()
    run = settings(folder)
    train_contrastive(model, sources or [source()], stage("contrastive", **fields), run, prompts or {})
    return model


def test_prompts_stand_before_queries_and_documents(tmp_path, fit_arguments):
    asked = source("asked", prompt="query", negatives=2)
    sources = [source("plain"), asked, source("sts", prompt="STS", symmetric=True)]
    prompts = {"query": "医生", "STS": "你好", "document": "药"}
    _train(tmp_path, sources=sources, prompts=prompts)
    documents = {"positive": "药", "negative_1": "药"}
    assert fit_arguments["prompts"] == {
        "plain": documents,
        "asked": {"query": "医生", **documents, "negative_2": "药"},
        "sts": dict.fromkeys(("query", "positive", "negative_1"), "你好"),
    }
    _train(tmp_path, sources=sources, prompts={"query": "医生", "STS": "", "document": ""})
    assert fit_arguments["prompts"] == {"plain": {}, "asked": {"query": "医生"}, "sts": {}}


@pytest.mark.parametrize(("wanted", "columns"), [(None, 3), (0, 2), (2, 4)])
def test_negatives_of_the_stage_come_before_those_of_the_data(tmp_path, fit_arguments, wanted, columns):
    _train(tmp_path, negatives=wanted)
    assert len(fit_arguments["data"]["qa"].column_names) == columns
    if wanted:
        without = [source(triples=[Triple("头疼", ("发热",))])]
        with pytest.raises(MarError, match="has a hard negative"):
            _train(tmp_path, sources=without, negatives=wanted)


def test_lora_trains_the_transformer_alone_and_is_merged(tmp_path):
    model = encoder("qwen3", 32)
    before = weights(model)
    _train(tmp_path, model=model, lora_r=2, lora_dropout=0.0)
    moved = changed(model, before)
    assert moved
    assert all(name.rpartition(".")[0].endswith("_proj") for name in moved)
    assert model.state_dict().keys() == before.keys()
    assert not has_adapter(model[0])
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    texts = [t.query for t in TRIPLES]
    np.testing.assert_allclose(loaded.encode(texts), model.encode(texts), atol=1e-6)


def test_an_adapter_of_a_16_bit_encoder_is_merged_in_float32(tmp_path):
    model = encoder("qwen3", 32).bfloat16()
    _train(tmp_path, model=model, lora_r=2)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("fields", [{}, {"lora_r": 2, "lora_dropout": 0.0}])
def test_start_share_mixes_the_first_and_the_trained_weights(tmp_path, fields):
    kind = ("qwen3", 32)
    start, trained, mixed = (
        weights(model)
        for model in (
            encoder(*kind),
            _train(tmp_path / "a", model=encoder(*kind), max_steps=3, **fields),
            _train(tmp_path / "b", model=encoder(*kind), max_steps=3, start_share=0.25, **fields),
        )
    )
    assert apart(trained, mixed, start) == pytest.approx(0.25, abs=0.01)
    for name, weight in mixed.items():
        assert torch.allclose(weight, 0.75 * trained[name] + 0.25 * start[name], atol=1e-6), name
