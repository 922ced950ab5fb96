"""Interpolation of trained weights with those at the start of a stage."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mar_st.stages.weights import mixed_with_start


def layer(value, dtype=torch.float32, *, frozen=()):
    module = nn.Linear(2, 2).to(dtype)
    for name, parameter in module.named_parameters():
        nn.init.constant_(parameter, value)
        parameter.requires_grad_(name not in frozen)
    return module


def trained(module, share, value):
    with mixed_with_start(module, share), torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)
    return {name: parameter.unique().item() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize(("share", "expected"), [(0.0, 3.0), (0.25, 2.5), (0.5, 2.0), (1.0, 1.0)])
def test_weights_lie_between_both_ends(share, expected):
    assert trained(layer(1.0), share, 3.0) == {"weight": expected, "bias": expected}


def test_frozen_weights_are_left_as_they_are():
    assert trained(layer(1.0, frozen={"bias"}), 0.5, 3.0) == {"weight": 2.0, "bias": 3.0}


def test_half_precision_is_rounded_once():
    """bfloat16 has no number between 256 and 258; the mean in float32 of 1 and 511 is 256."""
    assert trained(layer(1.0, torch.bfloat16), 0.5, 511.0)["weight"] == pytest.approx(256.5, abs=0.5)
    assert trained(layer(256.0, torch.bfloat16), 0.5, 256.0)["weight"] == 256.0


def test_an_error_in_training_leaves_the_weights_that_were_trained():
    module = layer(1.0)

    def failing():
        with mixed_with_start(module, 0.5):
            module.weight.data.fill_(3.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing()
    assert module.weight.unique().item() == 3.0
