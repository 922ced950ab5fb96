"""The packed graph computes what sentence-transformers computes, text by text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from mar_st.errors import MarError
from mar_st.export.graph import PackedEncoder, check_tokens, parts_of, write_front
from mar_st.online.front import TextPacker
from mar_st.online.torch_encoder import TorchEncoder
from tests.mar_st.conftest import make_config
from tests.mar_st.export.conftest import FAMILIES, TEXTS, make_model, with_pairs

#: Settings of a tiny decoder that all families know.
SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "max_position_embeddings", "pad_token_id", "initializer_range", "head_dim",
)  # fmt: skip


def packed_vectors(model, folder, texts, prompt=""):
    parts = parts_of(list(model))
    listing = write_front(TorchEncoder(model), parts, folder, source="tiny")
    check_tokens(parts, folder, listing, texts)
    front = TextPacker(folder, listing)
    graph = PackedEncoder(parts).eval()
    vectors = []
    with torch.inference_mode():
        for pack in front.packs([prompt + text for text in texts]):
            inputs = {name: torch.from_numpy(array) for name, array in pack.inputs.items()}
            vectors.append(graph(**inputs)[: pack.count].numpy())
    return np.concatenate(vectors)


@pytest.mark.parametrize(("model_type", "pooling"), FAMILIES)
def test_packed_equals_sentence_transformers(model_type, pooling, tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.online.front.PACK_TOKENS", 40)  # several packs, several texts in each
    model = make_model(model_type, pooling, dense=16)
    expected = np.stack([model.encode(text, task="query") for text in TEXTS])
    vectors = packed_vectors(model, tmp_path, TEXTS)
    assert vectors.shape == (len(TEXTS), 16)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3  # the texts do differ


@pytest.mark.thorough
@pytest.mark.parametrize(("model_type", "pooling"), FAMILIES)
def test_vectors_of_token_pairs_are_added_outside_the_graph(model_type, pooling, tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.online.front.PACK_TOKENS", 40)
    plain = make_model(model_type, pooling)
    model = with_pairs(plain, TEXTS[:3])
    expected = np.stack([model.encode(text, task="query") for text in TEXTS])
    without = np.stack([plain.encode(text, task="query") for text in TEXTS])
    vectors = packed_vectors(model, tmp_path, TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=5e-6)
    assert np.abs(expected - without).max() > 1e-3


def test_sliding_windows_are_those_of_the_model(tmp_path):
    config = make_config("modernbert")
    assert "sliding_attention" in config.layer_types
    model = make_model("modernbert")
    model[0].model.config.sliding_window = 2
    for layer in model[0].model.layers:
        if layer.attention_type == "sliding_attention":
            layer.attn.sliding_window = 3
    wide = make_model("modernbert").encode(TEXTS)
    expected = model.encode(TEXTS)
    assert np.abs(wide - expected).max() > 1e-4  # the window matters for these texts
    np.testing.assert_allclose(packed_vectors(model, tmp_path, TEXTS), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("qwen3", {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0}),
        ("qwen3", {"is_causal": False}),
        ("mistral", {"sliding_window": 4}),
        ("mistral", {"sliding_window": 4, "is_causal": False}),
        ("gemma3_text", {"sliding_window": 4}),
        ("gemma3_text", {"sliding_window": 8, "use_bidirectional_attention": True}),
        ("gemma", {}),
    ],
)
def test_windows_and_embeddings_of_decoders_are_those_of_the_model(model_type, settings, tmp_path):
    plain = {name: value for name, value in make_config("qwen3").to_dict().items() if name in SHARED}
    config = AutoConfig.for_model(model_type, **plain, **settings)
    texts = [*TEXTS, "感冒发热怎么办呢高血压医生你好"]
    model = make_model(pooling="lasttoken", config=config)
    expected = np.stack([model.encode(text, task="query") for text in texts])
    atol = 1e-3 if "gemma" in model_type else 2e-6  # its scaled embeddings are rounded to float16
    np.testing.assert_allclose(packed_vectors(model, tmp_path, texts), expected, atol=atol)


def test_unsupported_models_are_refused():
    model = make_model("bert", "max")
    with pytest.raises(MarError, match="Pooling 'max' cannot be exported"):
        parts_of(list(model))
    with pytest.raises(MarError, match="made of Normalize"):
        parts_of([model[-1]])
    with pytest.raises(MarError, match="leaves out the prompt"):
        parts_of(list(make_model("bert", include_prompt=False)))


def test_a_tokenizer_that_differs_from_its_file_is_refused(tmp_path):
    model = make_model("gte")
    parts = parts_of(list(model))
    listing = write_front(TorchEncoder(model), parts, tmp_path, source="tiny")
    content = (tmp_path / "tokenizer.json").read_text(encoding="utf-8").replace('"头": 5', '"头": 9', 1)
    (tmp_path / "tokenizer.json").write_text(content.replace('"头":5', '"头":9', 1), encoding="utf-8")
    with pytest.raises(MarError, match=r"does more than its tokenizer\.json says"):
        check_tokens(parts, tmp_path, listing, ["头头头"])
