from __future__ import annotations

import pytest
import torch
from sentence_transformers.base.modules import Dense
from torch import nn
from torch.nn import functional

from mar_st.modules import is_truncation, truncation

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_keeps_the_first_dimensions_exactly(dtype):
    layer = truncation(12, 5).to(dtype)
    vectors = functional.normalize(torch.randn(4, 12), dim=-1).to(dtype)
    cut = layer({"sentence_embedding": vectors})["sentence_embedding"]
    assert torch.equal(cut, vectors[:, :5])
    assert is_truncation(layer)
    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_other_linear_layers_are_not_taken_for_a_cut():
    cut = truncation(6, 3)
    cut.linear.weight[0, 1] = 1e-3
    assert not is_truncation(cut)
    assert not is_truncation(Dense(6, 3, bias=True, activation_function=nn.Identity()))
    assert not is_truncation(Dense(6, 3, bias=False))
    assert not is_truncation(nn.Linear(6, 3))


@pytest.mark.parametrize(("width", "kept"), [(4, 0), (4, 5)])
def test_impossible_widths_are_refused(width, kept):
    with pytest.raises(ValueError, match="Cannot keep"):
        truncation(width, kept)
