"""Inputs of an encoder's layers against those that transformers returns, and the modules that make them."""

from __future__ import annotations

import pytest
import torch

from mar_st.model import hidden_states
from mar_st.model.encoders import layer_stack, load_encoder
from mar_st.model.hidden_states import (
    ContextMeansError,
    InputEmbeddings,
    layer_inputs,
    norm_before,
    passes,
    without_norm,
)
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼吃什么药", "感冒", "高血压怎么办呢", "吃"]


def encoder(kind):
    role = "document" if kind in ("qwen3", "llama") else "query"
    torch.manual_seed(5)
    return load_encoder((make_config(kind), make_tokenizer(role)), role, max_length=32, pooling="mean")[0]


@pytest.mark.parametrize("kind", ["bert", "gte", "qwen3"])
def test_inputs_of_layers_are_the_hidden_states_before_them(kind):
    transformer = encoder(kind)
    transformer.model.eval()
    (features,) = passes(transformer, TEXTS, 32)
    with torch.inference_mode():
        expected = transformer.model(**features, output_hidden_states=True).hidden_states
    inputs = layer_inputs(transformer.model, features, [1, 0])
    assert sorted(inputs) == [0, 1]
    for layer, states in inputs.items():
        torch.testing.assert_close(states, expected[layer])


def test_layers_behind_the_last_one_that_is_wanted_do_not_run():
    model = encoder("bert").model
    _, stack = layer_stack(model)
    ran = []
    for number, layer in enumerate(stack):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    ids = torch.tensor([[2, 7, 3]])
    layer_inputs(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [1])
    assert ran == [0]
    model(input_ids=ids)
    assert ran == [0, 0, 1]  # no hook of the call is left


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "gte", "qwen3", "llama"])
def test_the_embeddings_reproduce_the_states_before_the_first_layer(kind):
    model = encoder(kind).model.eval()
    tokens = torch.tensor([7, 8, 9, 7])
    inputs = layer_inputs(
        model, {"input_ids": tokens[None], "attention_mask": torch.ones(1, 4, dtype=torch.long)}, [0]
    )
    embeddings = InputEmbeddings.of(model)
    torch.testing.assert_close(embeddings.output(tokens), inputs[0][0], atol=1e-5, rtol=1e-5)
    without = embeddings.output(tokens, positions=False)
    assert torch.equal(without[0], without[3])  # the same token at two positions
    has_positions = kind in ("bert", "roberta", "xlm-roberta")
    assert torch.equal(embeddings.output(tokens)[0], embeddings.output(tokens)[3]) is not has_positions


def test_embeddings_that_are_made_in_another_way_are_refused():
    with pytest.raises(ContextMeansError, match=r"ModernBertModel makes hidden states .* not supported"):
        InputEmbeddings.of(encoder("modernbert").model)


@pytest.mark.parametrize("bound", [1, 20, 10_000])
def test_passes_hold_every_text_once_and_few_tokens(bound, monkeypatch):
    monkeypatch.setattr(hidden_states, "MAX_PASS_TOKENS", bound)
    transformer = encoder("bert")
    rows = [
        ids[mask.bool()].tolist()
        for features in passes(transformer, TEXTS, 32)
        for ids, mask in zip(features["input_ids"], features["attention_mask"], strict=True)
    ]
    expected = [transformer.tokenizer(text)["input_ids"] for text in TEXTS]
    assert sorted(rows) == sorted(expected)
    assert [len(row) for row in rows] == sorted(map(len, expected), reverse=True)
    sizes = [features["input_ids"].shape for features in passes(transformer, TEXTS, 32)]
    assert all(texts * tokens <= max(bound, tokens) for texts, tokens in sizes)
    assert (len(sizes) == 1) is (bound == 10_000)


def test_the_norm_before_a_layer_makes_its_input():
    model = encoder("bert").model.eval()
    _, stack = layer_stack(model)
    norm = norm_before(model, 1)
    last = stack[0].output.LayerNorm
    assert torch.equal(norm.weight, last.weight)
    with torch.no_grad():
        norm.weight.zero_()
    assert last.weight.abs().min() > 0
    with pytest.raises(ContextMeansError, match="layers of Qwen3Model do not end in a LayerNorm"):
        norm_before(encoder("qwen3").model, 1)


def test_undoing_a_norm_gives_the_normalised_values_back():
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(6)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        norm.weight[2] = 0.0
    states = torch.randn(5, 4, 6)
    outputs = norm(states).detach()
    centred = torch.nn.functional.layer_norm(states, (6,))
    centred[..., 2] = 0.0
    undone = without_norm(norm, outputs.sum(dim=1), torch.full((5,), 4.0))
    torch.testing.assert_close(undone, centred.sum(dim=1), atol=1e-4, rtol=1e-4)
