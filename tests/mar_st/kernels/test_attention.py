"""Packed attention: each text attends to itself alone, with every version of torch."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.attention.varlen as varlen
import torch.nn.functional as functional

from mar_st.kernels.attention import packed_attention, variable_length_attention

HEADS, KEY_HEADS, SIZE = 4, 2, 8
BOUNDS = torch.tensor([0, 3, 4, 11], dtype=torch.int32)


def by_text(query, key, value, bounds, *, scale, mask_of):
    """Attention of each text on its own, `(tokens, heads, size)`, as the kernel of a GPU computes it."""
    outputs = []
    for start, end in pairwise(bounds.tolist()):
        parts = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        outputs.append(
            functional.scaled_dot_product_attention(*parts, attn_mask=mask_of(end - start), scale=scale)
        )
    return torch.cat(outputs, dim=1).transpose(0, 1)


def inside(window, length):
    """Which tokens see each other in a window `(left, right)`; -1: all on that side."""
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    left, right = (length if side < 0 else side for side in window)
    return (distance <= left) & (distance >= -right)


def same_heads(query, key):
    if query.shape[1] != key.shape[1]:
        raise ValueError("key and value need as many heads as query")


def torch_2_10(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
    same_heads(query, key)
    window = (-1, 0 if is_causal else -1)
    return by_text(query, key, value, cu_seq_q, scale=None, mask_of=lambda n: inside(window, n))


def torch_2_11(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)
):
    same_heads(query, key)
    return by_text(query, key, value, cu_seq_q, scale=scale, mask_of=lambda n: inside(window_size, n))


def torch_2_12(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *,
    return_aux=None, scale=None, window_size=(-1, -1), enable_gqa=False,
):  # fmt: skip
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    return torch_2_11(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale=scale, window_size=window_size
    )


VERSIONS = [torch_2_10, torch_2_11, torch_2_12]


def tensors(key_heads=KEY_HEADS):
    torch.manual_seed(0)
    tokens = int(BOUNDS[-1])
    return [torch.randn(tokens, heads, SIZE) for heads in (HEADS, key_heads, key_heads)]


def on_cpu(query, key, value, **options):
    """`packed_attention` on a CPU, which the kernel of a GPU has to match."""
    module = torch.nn.Module()
    rows = [tensor.transpose(0, 1)[None] for tensor in (query, key, value)]
    output, _ = packed_attention(
        module, *rows, None, cu_seq_lens_q=BOUNDS, max_length_q=7, **options
    )  # `(1, tokens, heads, size)`
    return output[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key_heads", [HEADS, KEY_HEADS])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scaling", [None, 0.1])
def test_every_version_of_torch_gives_the_vectors_of_the_cpu(
    monkeypatch, version, key_heads, causal, scaling
):
    monkeypatch.setattr(varlen, "varlen_attn", version)
    query, key, value = tensors(key_heads)
    actual = variable_length_attention(query, key, value, BOUNDS, 7, scaling=scaling, causal=causal)
    torch.testing.assert_close(actual, on_cpu(query, key, value, scaling=scaling, is_causal=causal))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("version", [torch_2_11, torch_2_12])
def test_a_sliding_window_gives_the_vectors_of_the_cpu(monkeypatch, version, causal):
    monkeypatch.setattr(varlen, "varlen_attn", version)
    query, key, value = tensors()
    actual = variable_length_attention(query, key, value, BOUNDS, 7, causal=causal, window=3)
    torch.testing.assert_close(actual, on_cpu(query, key, value, is_causal=causal, sliding_window=3))
    everything = on_cpu(query, key, value, is_causal=causal)
    assert not torch.allclose(actual, everything, atol=1e-3)  # the window matters


def test_a_torch_without_sliding_windows_refuses_them(monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", torch_2_10)
    with pytest.raises(ValueError, match="no sliding windows"):
        variable_length_attention(*tensors(), BOUNDS, 7, causal=True, window=3)


def test_a_model_that_passes_no_bounds_is_refused():
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in tensors())
    with pytest.raises(ValueError, match="not given the bounds"):
        packed_attention(torch.nn.Module(), query, key, value, None)
