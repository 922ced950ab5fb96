from __future__ import annotations

import pytest
import torch
from sentence_transformers.base.modules import Dense
from torch import nn
from torch.nn import functional

from mar_st.modules import INERT_SCALE, is_truncation, restore, truncation

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("scale", [1.0, INERT_SCALE])
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_keeps_the_first_dimensions_exactly(dtype, scale):
    layer = truncation(12, 5, scale=scale).to(dtype)
    vectors = functional.normalize(torch.randn(4, 12), dim=-1).to(dtype)
    cut = layer({"sentence_embedding": vectors})["sentence_embedding"]
    assert torch.equal(cut, vectors[:, :5] * scale)
    assert is_truncation(layer)
    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_other_linear_layers_are_not_taken_for_a_cut():
    cut = truncation(6, 3)
    cut.linear.weight[0, 1] = 1e-3
    assert not is_truncation(cut)
    assert not is_truncation(Dense(6, 3, bias=True, activation_function=nn.Identity()))
    assert not is_truncation(Dense(6, 3, bias=False))
    assert not is_truncation(nn.Linear(6, 3))


def test_an_inert_cut_with_changed_weights_is_recognised_and_restored():
    cut = truncation(6, 3, scale=INERT_SCALE)
    cut.requires_grad_(True)
    cut.linear.weight.data += 1e-2 * torch.randn(3, 6)
    assert is_truncation(cut)
    restore(cut)
    assert torch.equal(cut.linear.weight, INERT_SCALE * torch.eye(3, 6))
    assert not cut.linear.weight.requires_grad


@pytest.mark.parametrize(("width", "kept"), [(4, 0), (4, 5)])
def test_impossible_widths_are_refused(width, kept):
    with pytest.raises(ValueError, match="Cannot keep"):
        truncation(width, kept)
