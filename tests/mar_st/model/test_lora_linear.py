"""LoRA layers that pass over activations less often than peft's give its outputs and gradients."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("peft", reason="LoRA needs the train extra")

import peft
from peft.tuners.lora import Linear

from mar_st.model.lora_linear import LoRALinear, replace_layers

WIDTH, OUT = 24, 40


def layers(dtype=torch.float32, *, dropout=0.0, **fields):
    """A linear layer with an adapter that is not zero: peft's, and a copy that computes as ours."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, OUT, dtype=dtype))
    model.requires_grad_(False)
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules=["0"], **fields)
    model = peft.inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter.data, dtype=torch.float32) / 4
    ours = copy.deepcopy(model)
    replace_layers(ours)
    return model, ours


def inputs(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(3, 5, WIDTH, dtype=dtype, requires_grad=True)


def run(model, x, *, autocast=False):
    """Output, and gradients of the input and of the adapter."""
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = model(x)
    x.grad = None
    (output.float() * torch.linspace(-1, 1, OUT)).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return output, {"input": x.grad, **gradients}


def test_outputs_and_gradients_are_those_of_peft():
    theirs, ours = layers()
    assert [type(model[0]) for model in (theirs, ours)] == [Linear, LoRALinear]
    expected, expected_gradients = run(theirs, inputs())
    actual, gradients = run(ours, inputs())
    torch.testing.assert_close(actual, expected)
    assert len(gradients) == 3
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_mixed_precision_is_nearer_to_full_precision_than_peft(stored):
    theirs, ours = layers(stored)
    x = inputs(torch.bfloat16)
    exact, exact_gradients = run(copy.deepcopy(theirs).double(), x.detach().double().requires_grad_())
    distance = {}
    for name, model in {"theirs": theirs, "ours": ours}.items():
        output, gradients = run(model, x, autocast=True)
        assert output.dtype == torch.bfloat16
        distance[name] = (output - exact).norm()
        for part, gradient in gradients.items():
            torch.testing.assert_close(gradient.double(), exact_gradients[part], rtol=0.05, atol=0.2)
    assert distance["ours"] < distance["theirs"]
