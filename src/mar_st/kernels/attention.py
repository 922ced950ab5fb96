"""Attention over texts that are packed end to end, without padding, for any backbone of transformers.

transformers lets a program register an attention of its own. This one gets all texts of a batch as one row
and their bounds (`cu_seq_lens_q`, as flash attention names them), so that linear layers see no padding. On a
GPU it is torch's variable-length flash attention, which needs no further package; on a CPU one call per text.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

#: Name of the attention in transformers' registry.
PACKED_ATTENTION = "mar_packed"

#: Arguments that pass the bounds of the texts through the model's forward to the attention.
BOUNDS_ARGUMENTS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def packed_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each text of a row.

    Args:
        module: The attention layer; its own `is_causal` is the default.
        query: `(1, heads, tokens, size)`.
        key: `(1, key heads, tokens, size)`.
        value: `(1, key heads, tokens, size)`.
        attention_mask: Not used; the bounds of the texts replace it.
        scaling: Factor of the scores.
        dropout: Not used; nothing is trained here.
        is_causal: Whether a token sees only those before it.
        sliding_window: Maximum number of tokens that a token sees on each side, itself included.
        cu_seq_lens_q: First token of each text, and the number of tokens, `(texts + 1,)` int32.
        max_length_q: Tokens of the longest text.

    Returns:
        `(1, tokens, heads, size)`, and `None` instead of weights.
    """
    del attention_mask, dropout
    if cu_seq_lens_q is None or max_length_q is None:
        raise ValueError(f"{type(module).__name__} was not given the bounds of the texts.")
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn  # lazy: torch.nn.attention.varlen

        side = -1 if sliding_window is None or sliding_window > max_length_q else sliding_window - 1
        attend: Any = varlen_attn
        output: torch.Tensor = attend(
            *(tensor[0].transpose(0, 1) for tensor in (query, key, value)),
            cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q,
            scale=scaling, window_size=(side, 0 if causal else side),
            enable_gqa=query.shape[1] != key.shape[1],
        )  # fmt: skip
        return output[None], None
    bounds = cu_seq_lens_q.tolist()
    outputs = []
    for start, end in pairwise(bounds):
        mask = None
        if sliding_window is not None and end - start > sliding_window:
            places = torch.arange(end - start, device=query.device)
            distance = places[:, None] - places[None]
            mask = (distance.abs() < sliding_window) & ((distance >= 0) | (not causal))
        outputs.append(
            functional.scaled_dot_product_attention(
                query[:, :, start:end], key[:, :, start:end], value[:, :, start:end],
                attn_mask=mask, is_causal=causal and mask is None, scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        )  # fmt: skip
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def register() -> None:
    """Register the attention with transformers; further calls change nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface  # lazy: transformers

    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    AttentionMaskInterface.register(PACKED_ATTENTION, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """Every text is whole, so there is nothing to mask."""


def can_pack(transformer: Any) -> bool:
    """Return True if a transformer, on its current device, accepts packed texts (laid end to end).

    On a GPU this needs half precision, as flash attention does, and torch 2.12. The engine then tests that
    packing leaves the vectors unchanged: an architecture may mix neighbouring tokens elsewhere, too.
    """
    model = transformer.model
    if transformer.backend != "torch" or not getattr(model, "is_backend_compatible", lambda: False)():
        return False
    if any(part["method"] != "forward" for part in transformer.modality_config.values()):
        return False
    weight = next(model.parameters())
    if not weight.is_cuda:
        return True
    try:
        from torch.nn.attention.varlen import varlen_attn  # lazy: torch.nn.attention.varlen
    except ImportError:
        return False
    known = {"scale", "window_size", "enable_gqa"} <= set(inspect.signature(varlen_attn).parameters)
    return known and weight.dtype in (torch.float16, torch.bfloat16)


@contextmanager
def packed(transformer: Any) -> Iterator[None]:
    """Make a transformer use this attention within the block."""
    register()
    model = transformer.model
    before, parameters = model.config._attn_implementation, transformer.model_forward_params
    model.set_attn_implementation(PACKED_ATTENTION)
    if parameters is not None:
        transformer.model_forward_params = {*parameters, *BOUNDS_ARGUMENTS}
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        transformer.model_forward_params = parameters
