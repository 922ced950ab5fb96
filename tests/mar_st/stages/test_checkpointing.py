"""Gradient checkpointing: the same gradients, for the encoders that are trained."""

from __future__ import annotations

import pytest
import torch

from mar_st.errors import MarError
from mar_st.stages.checkpointing import gradient_checkpointing
from mar_st.stages.compiling import transformers_of
from tests.mar_st.stages.helpers import encoder, mar


def gradients(model, *, enabled):
    torch.manual_seed(0)  # of dropout
    model.train()
    model.zero_grad()
    calls = []
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [layer.register_forward_hook(lambda *_: calls.append(1)) for layer in layers]
    with gradient_checkpointing(model, enabled=enabled, stage="joint"):
        output = model(model.preprocess(["头疼怎么办", "发热"]))["sentence_embedding"]
        output.square().mul(torch.arange(1.0, output.shape[1] + 1)).sum().backward()
    for hook in hooks:
        hook.remove()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, len(calls)


@pytest.mark.parametrize("kind", ["gte", "bert", "qwen3"])
def test_gradients_are_the_same_and_activations_are_computed_twice(kind):
    model = encoder(kind)
    (plain, once), (again, twice) = gradients(model, enabled=False), gradients(model, enabled=True)
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-7)
    assert 1.5 * once < twice <= 2 * once  # the last products of a layer need not be repeated
    assert gradients(model, enabled=False)[1] == once  # it ends with the context


def test_only_encoders_that_are_trained_recompute():
    model = mar()
    query, document = transformers_of(model)
    document.requires_grad_(False)
    with gradient_checkpointing(model, enabled=True, stage="joint"):
        assert (query.is_activation_checkpointing, document.is_activation_checkpointing) == (True, False)
    assert not query.is_activation_checkpointing


def test_an_encoder_without_support_is_one_error_with_advice(monkeypatch):
    model = encoder()
    kind = type(transformers_of(model)[0])

    def unsupported(self, *args, **kwargs):
        raise ValueError("no layers to checkpoint")

    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
        monkeypatch.setattr(kind, name, unsupported, raising=False)
    with (
        pytest.raises(MarError, match=rf"stage joint: {kind.__name__} does not support .* mini_batch_size"),
        gradient_checkpointing(model, enabled=True, stage="joint"),
    ):
        pytest.fail("training began")
