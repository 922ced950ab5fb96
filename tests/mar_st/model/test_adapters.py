from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.adapters import add_lora, has_adapter, merge_lora
from mar_st.model.encoders import load_encoder
from tests.mar_st.conftest import make_config, make_tokenizer

pytest.importorskip("peft", reason="LoRA needs the train extra")


def _adapter_folder(folder, **settings):
    """Return the folder of an adapter for an encoder in `folder/base`; all of its weights are random."""
    base, adapter = folder / "base", folder / "adapter"
    torch.manual_seed(5)
    AutoModel.from_config(make_config("qwen3")).save_pretrained(base)
    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=2, **settings))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.5 * torch.randn(parameter.shape)
    model.save_pretrained(adapter)
    make_tokenizer("document").save_pretrained(adapter)
    return adapter


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["v_proj"]},
        {"target_modules": ["v_proj", "embed_tokens"]},
        {"target_modules": ["v_proj"], "trainable_token_indices": {"embed_tokens": list(range(40))}},
        {"target_modules": ["v_proj", "down_proj"], "modules_to_save": ["mlp"]},
    ],
    ids=["linear layers", "embeddings", "some tokens", "whole modules"],
)
def test_a_merged_adapter_computes_and_is_saved_as_the_adapter(
    query_source, documents, tmp_path, settings, monkeypatch
):
    adapter = _adapter_folder(tmp_path, **settings)
    make_tokenizer("document").save_pretrained(tmp_path / "base")

    def built(document):
        return MAR.from_encoders(query_source, document, dim=32, device="cpu")

    with monkeypatch.context() as patch:
        patch.setattr("mar_st.model.encoders.merge_lora", lambda transformer: None)
        expected = built(adapter).encode_corpus(documents)
    assert np.abs(built(tmp_path / "base").encode_corpus(documents) - expected).max() > 1e-2
    merged = built(adapter)
    np.testing.assert_allclose(merged.encode_corpus(documents), expected, atol=1e-5)
    merged.save_pretrained(str(tmp_path / "mar"))
    saved = MAR.from_pretrained(tmp_path / "mar", device="cpu")
    np.testing.assert_allclose(saved.encode_corpus(documents), expected, atol=1e-5)


def test_a_mar_with_an_unmerged_adapter_is_not_saved(mar, tmp_path):
    add_lora(mar.route_modules("document")[0], r=4)
    assert has_adapter(mar.route_modules("document")[0])
    with pytest.raises(MarError, match="The document encoder carries an adapter"):
        mar.save_pretrained(str(tmp_path / "mar"))
    assert not (tmp_path / "mar").exists()
    merge_lora(mar.route_modules("document")[0])
    mar.save_pretrained(str(tmp_path / "mar"))
    MAR.from_pretrained(tmp_path / "mar", device="cpu")


def _encoder(model_type):
    torch.manual_seed(3)
    role = "query" if model_type in ("gte", "bert", "modernbert") else "document"
    config = make_config(model_type)
    if model_type in ("mistral", "gemma"):
        config.num_key_value_heads, config.head_dim = 2, 8
    return load_encoder((config, make_tokenizer(role)), role)[0]


BERT = ("query", "key", "value", "dense")
ARCHITECTURES = {
    **dict.fromkeys(
        ("qwen3", "llama", "mistral", "gemma", "gte"),
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    ),
    "gpt_neox": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),
    "bert": BERT,
    "modernbert": ("Wqkv", "Wo", "Wi"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_every_linear_layer_of_an_architecture_is_adapted(model_type):
    transformer = _encoder(model_type)
    linear = [
        name
        for name, module in transformer.model.named_modules()
        if isinstance(module, torch.nn.Linear) and "pooler" not in name
    ]
    features = transformer.preprocess(["头疼吃药", "高血压怎么办呢"])
    with torch.no_grad():
        base = transformer.eval()(dict(features))["token_embeddings"]
    add_lora(transformer, r=2, alpha=8, dropout=0.0)
    adapted = {
        name.partition(".lora_")[0] for name, p in transformer.model.named_parameters() if p.requires_grad
    }
    assert adapted == set(linear)
    assert {name.rpartition(".")[2] for name in adapted} == set(ARCHITECTURES[model_type])
    for name, parameter in transformer.model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    with torch.no_grad():
        unmerged = transformer(dict(features))["token_embeddings"]
        merge_lora(transformer)
        merged = transformer(dict(features))["token_embeddings"]
    assert (merged - base).abs().max() > 0.01
    torch.testing.assert_close(merged, unmerged, rtol=1e-4, atol=1e-4)
    assert not any("lora" in name for name, _ in transformer.model.named_parameters())


def test_an_adapter_is_float32_on_an_encoder_in_bfloat16():
    transformer = _encoder("qwen3")
    transformer.model.to(torch.bfloat16)
    add_lora(transformer, r=2, dropout=0.0)
    dtypes = {p.requires_grad: p.dtype for p in transformer.model.parameters()}
    assert dtypes == {False: torch.bfloat16, True: torch.float32}


def _bfloat16_with_update(scale):
    """An encoder in bfloat16 with an adapter, its weights before and its updates in float32, by layer."""
    transformer = _encoder("qwen3")
    transformer.model.to(torch.bfloat16)
    add_lora(transformer, r=4, alpha=8, dropout=0.0)
    torch.manual_seed(6)
    before, update = {}, {}
    for name, layer in transformer.model.named_modules():
        if hasattr(layer, "lora_B"):
            layer.lora_B["default"].weight.data.normal_(std=scale)
            before[name] = layer.base_layer.weight.data.clone()
            update[name] = layer.get_delta_weight("default").detach().clone()
    assert {delta.dtype for delta in update.values()} == {torch.float32}
    return transformer, before, update


def test_a_merge_into_bfloat16_rounds_the_sum_once():
    transformer, before, update = _bfloat16_with_update(scale=0.01)
    merge_lora(transformer)
    for name in before:
        weight = transformer.model.get_submodule(name).weight.data
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, (before[name].float() + update[name]).bfloat16())


def test_other_adapter_types_are_merged_by_peft():
    transformer = _encoder("qwen3")
    config = LoraConfig(r=4, target_modules=["q_proj"], use_dora=True, init_lora_weights=False)
    transformer.model.add_adapter(config)
    features = transformer.preprocess(["头疼吃什么药"])
    with torch.no_grad():
        expected = transformer(dict(features))["token_embeddings"]
        merge_lora(transformer)
        merged = transformer(dict(features))["token_embeddings"]
    torch.testing.assert_close(merged, expected, atol=1e-4, rtol=1e-4)


def test_an_update_that_is_not_finite_is_refused():
    transformer, *_ = _bfloat16_with_update(scale=0.01)
    next(p for name, p in transformer.model.named_parameters() if "lora_B" in name).data.fill_(float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        merge_lora(transformer)
