"""Attention of transformers models in float32, for training under bfloat16 autocast on a CPU."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

#: Name of the attention in transformers' registry.
FLOAT32_ATTENTION = "mar_float32"


@contextmanager
def float32_attention(models: Sequence[Any]) -> Iterator[None]:
    """Compute attention of transformers models in float32 for as long as the context lasts.

    For training under bfloat16 autocast on a CPU: torch's fused attention is slower there in bfloat16 than in
    float32. On an AMD EPYC (Zen 4, 2 cores) a training step of
    multilingual-e5-small on 64 texts of 96 tokens takes 6.0 s in float32, 3.9 s under autocast and 3.1 s with
    this attention (`benchmarks/cpu_precision.py`).

    Args:
        models: transformers models; those that do not use `sdpa` keep their own attention.
    """
    before = [(model, model.config._attn_implementation) for model in models if _has_sdpa(model)]
    for model, _ in before:
        _use(model)
    try:
        yield
    finally:
        for model, attention in before:
            model.set_attn_implementation(attention)


def _float32_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # lazy: transformers

    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    with torch.autocast(query.device.type, enabled=False):
        output, _ = sdpa_attention_forward(
            module, query.float(), key.float(), value.float(), attention_mask, **options
        )
    return output.to(query.dtype), None


def _has_sdpa(model: Any) -> bool:
    """Return True if a model uses `sdpa`, and transformers can give it another attention."""
    uses = getattr(model.config, "_attn_implementation", None) == "sdpa"
    return uses and bool(getattr(model, "is_backend_compatible", lambda: False)())


def _use(model: Any) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface  # lazy: transformers
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # lazy: transformers

    AttentionInterface.register(FLOAT32_ATTENTION, _float32_attention)
    AttentionMaskInterface.register(FLOAT32_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(FLOAT32_ATTENTION)
