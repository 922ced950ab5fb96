"""Packed attention: each text attends to itself alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as functional

from mar_st.kernels.attention import packed_attention

HEADS, SIZE = 4, 8
BOUNDS = torch.tensor([0, 3, 4, 11], dtype=torch.int32)


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 3), (False, 3)])
def test_each_text_attends_to_itself_alone(key_heads, causal, window):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, 11, SIZE) for heads in (HEADS, key_heads, key_heads))
    options = {"cu_seq_lens_q": BOUNDS, "max_length_q": 7, "scaling": 0.2}
    module = torch.nn.Module()
    actual, _ = packed_attention(
        module, query, key, value, None, is_causal=causal, sliding_window=window, **options
    )
    key, value = (part.repeat_interleave(HEADS // key_heads, dim=1) for part in (key, value))
    for start, end in pairwise(BOUNDS.tolist()):
        place = torch.arange(end - start)
        distance = place[:, None] - place[None]
        seen = (distance.abs() < (window or 99)) & ((distance >= 0) | (not causal))
        part = slice(start, end)
        expected = functional.scaled_dot_product_attention(
            query[:, :, part], key[:, :, part], value[:, :, part], attn_mask=seen, scale=0.2
        )
        torch.testing.assert_close(actual[:, part], expected.transpose(1, 2))


def test_a_model_that_passes_no_bounds_is_refused():
    query = torch.randn(1, HEADS, 11, SIZE)
    with pytest.raises(ValueError, match="not given the bounds"):
        packed_attention(torch.nn.Module(), query, query, query, None)
