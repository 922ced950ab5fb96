"""Attention in float32 for training: it rounds once, and ends with its context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mar_st.kernels.cpu_attention import FLOAT32_ATTENTION, float32_attention
from tests.mar_st.encode.encoders import symmetric


def drawn(texts: int = 3, heads: int = 4, groups: int = 4, tokens: int = 9, size: int = 16) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(texts, tokens, number, size) for number in (heads, groups, groups)]
    return [torch.randn(shape, generator=generator).bfloat16().transpose(1, 2) for shape in shapes]


def layer(causal: bool = False) -> nn.Module:
    module: Any = nn.Module()
    module.is_causal, module.num_key_value_groups = causal, 1
    return module


def exact(tensors: list[Any], mask: torch.Tensor | None = None, scale: float | None = None) -> torch.Tensor:
    doubles = [tensor.double() for tensor in tensors]
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.double()
    return scaled_dot_product_attention(
        *doubles, attn_mask=mask, scale=scale, enable_gqa=tensors[0].shape[1] != tensors[1].shape[1]
    ).transpose(1, 2)


def padding(texts: int = 3, tokens: int = 9) -> torch.Tensor:
    """Bool, `(texts, 1, tokens, tokens)`: text i has i + 5 tokens, its first one sees itself alone."""
    seen = torch.arange(tokens) < torch.arange(5, 5 + texts)[:, None]
    mask = seen[:, None, None, :].repeat(1, 1, tokens, 1)
    mask[:, :, 0, 1:] = False
    return mask


def taught(tensors: list[Any], mask: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Attention in float32 under autocast, and the gradients of the sum of its squares."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    module: Any = layer()
    module.num_key_value_groups = tensors[0].shape[1] // tensors[1].shape[1]
    with float32_attention([symmetric("gte")[0].model]):
        attention: Any = ALL_ATTENTION_FUNCTIONS[FLOAT32_ATTENTION]
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = attention(module, *leaves, mask)
    output.float().square().sum().backward()
    return output, [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("kind", ["none", "bool", "added"])
def test_attention_in_float32_rounds_once(groups: int, kind: str) -> None:
    """Output and gradients are the exact ones but for the rounding of the result to bfloat16."""
    tensors = drawn(groups=groups)
    added = torch.zeros(padding().shape).masked_fill(~padding(), torch.finfo(torch.bfloat16).min).bfloat16()
    mask = {"none": None, "bool": padding(), "added": added}[kind]
    output, gradients = taught(tensors, mask)
    doubles = [tensor.double().requires_grad_() for tensor in tensors]
    expected = exact(doubles, mask)
    expected.backward(2 * output.detach().double())
    assert output.dtype == torch.bfloat16
    assert (output == expected.bfloat16()).float().mean() > 0.99
    torch.testing.assert_close(output, expected.bfloat16(), rtol=2**-7, atol=1e-6)
    for gradient, double in zip(gradients, doubles, strict=True):
        torch.testing.assert_close(gradient, double.grad.bfloat16(), rtol=2**-6, atol=2**-6)


def test_float32_attention_ends_with_its_context() -> None:
    model, eager = symmetric("gte")[0].model, symmetric("gte")[0].model
    eager.set_attn_implementation("eager")
    ids = torch.arange(12).reshape(2, 6)
    expected = model(ids).last_hidden_state

    def interrupted() -> None:
        with float32_attention([model, eager]):
            assert model.config._attn_implementation == FLOAT32_ATTENTION
            assert eager.config._attn_implementation == "eager"
            torch.testing.assert_close(model(ids).last_hidden_state, expected, rtol=0, atol=0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert model.config._attn_implementation == "sdpa"
