"""Attention over texts that are packed end to end, without padding, for any backbone of transformers.

transformers lets a program register an attention of its own. This one gets all texts of a batch as one row
and their bounds (`cu_seq_lens_q`, as flash attention names them), so that linear layers see no padding. On a
GPU it is torch's variable-length flash attention, which needs no further package; on a CPU one call per text.
"""

from __future__ import annotations

import inspect
import logging
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

logger = logging.getLogger(__name__)

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
        output = variable_length_attention(
            query[0].transpose(0, 1),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            cu_seq_lens_q,
            max_length_q,
            scaling=scaling,
            causal=causal,
            window=None if sliding_window is None or sliding_window > max_length_q else sliding_window,
        )
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


def variable_length_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    longest: int,
    *,
    scaling: float | None = None,
    causal: bool,
    window: int | None = None,
) -> torch.Tensor:
    """Call torch's `varlen_attn` with the parameters that this version of torch knows.

    torch 2.10 has neither `scale` nor `window_size`, and 2.11 no `enable_gqa`: there, queries are scaled and
    keys and values repeated beforehand.

    Args:
        query: `(tokens, heads, size)`.
        key: `(tokens, key heads, size)`.
        value: `(tokens, key heads, size)`.
        bounds: First token of each text, and the number of tokens, `(texts + 1,)` int32.
        longest: Tokens of the longest text.
        scaling: Factor of the scores; default `size ** -0.5`.
        causal: Whether a token sees only those before it.
        window: Maximum number of tokens that a token sees on each side, itself included.

    Returns:
        `(tokens, heads, size)`.

    Raises:
        ValueError: This version of torch has no sliding windows.
    """
    from torch.nn.attention.varlen import varlen_attn  # lazy: torch.nn.attention.varlen

    known = inspect.signature(varlen_attn).parameters
    options: dict[str, Any] = {}
    if query.shape[1] != key.shape[1]:
        if "enable_gqa" in known:
            options["enable_gqa"] = True
        else:
            groups = query.shape[1] // key.shape[1]
            key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    if "scale" in known:
        options["scale"] = scaling
    elif scaling is not None:
        query = query * (scaling * query.shape[2] ** 0.5)
    if "window_size" in known:
        side = -1 if window is None else window - 1
        options["window_size"] = (side, 0 if causal else side)
    elif window is not None:
        raise ValueError(f"torch {torch.__version__} has no sliding windows for packed texts.")
    else:
        options["is_causal"] = causal
    attend: Any = varlen_attn
    output: torch.Tensor = attend(query, key, value, bounds, bounds, longest, longest, **options)
    return output


def register() -> None:
    """Register the attention with transformers; further calls change nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface  # lazy: transformers

    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    AttentionMaskInterface.register(PACKED_ATTENTION, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """Every text is whole, so there is nothing to mask."""


def can_pack(transformer: Any) -> bool:
    """Return True if a transformer, on its current device, accepts packed texts (laid end to end).

    On a GPU this needs half precision, as flash attention does. The engine then tests that packing leaves the
    vectors unchanged: an architecture may mix neighbouring tokens elsewhere than in attention.
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
        from torch.nn.attention.varlen import varlen_attn  # noqa: F401 -- torch 2.10 and later  # lazy: torch.nn.attention.varlen
    except ImportError:
        return False
    return weight.dtype in (torch.float16, torch.bfloat16)


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
