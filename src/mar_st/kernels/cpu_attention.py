"""Attention in bfloat16 on a CPU: as batched matrix products, and in float32 for training.

torch's fused attention computes the scores a few tokens at a time. Texts of an encoder are short enough for
all scores of some heads to stay in cache, so here one product computes them, one softmax follows, and another
product weights the values: torch's own takes 1.7 times as long (`benchmarks/attention.py`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

#: Names of the attentions in transformers' registry.
PRODUCT_ATTENTION = "mar_products"
FLOAT32_ATTENTION = "mar_float32"

#: Bytes of scores per product, so that scores and weights stay in a processor's own cache.
_SCORE_BYTES_PER_PRODUCT = 2**20

#: Maximum bytes of the scores of one key head; for longer texts torch's attention is used, which stores none.
_MAX_HEAD_SCORE_BYTES = 16 * 2**20


def product_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention, for inference; unsupported cases go to transformers' own.

    Scores are rounded to bfloat16, as in transformers' `eager` attention.

    Args:
        module: The attention layer; its own `is_causal` is the default.
        query: `(texts, heads, tokens, size)`.
        key: `(texts, key heads, tokens, size)`.
        value: `(texts, key heads, tokens, size)`.
        attention_mask: `(texts, 1, tokens or 1, tokens)`, bool (true: seen) or added to scores; or `None`.
        scaling: Factor of the scores; default `size ** -0.5`.
        dropout: Passed to transformers' own attention.
        is_causal: Whether a token sees only those before it, if there is no mask.
        **more: Passed to transformers' own attention.

    Returns:
        `(texts, tokens, heads, size)`, and `None` instead of weights.
    """
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    needs_causal_mask = causal and attention_mask is None and query.shape[2] > 1
    if needs_causal_mask or not _fits(query, key, value, attention_mask, more):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward  # lazy: transformers

        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal=is_causal, **more
        )
        return output, None
    return _products(query, key, value, attention_mask, scaling or query.shape[-1] ** -0.5), None


def _fits(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    more: dict[str, Any],
) -> bool:
    return (
        query.dtype == key.dtype == value.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and query.numel() > 0
        and query.shape[2] == key.shape[2]
        and _group_bytes(query, key) <= _MAX_HEAD_SCORE_BYTES
        and (mask is None or (mask.ndim == 4 and mask.shape[:2] == (query.shape[0], 1)))
        and more.get("position_bias") is None
        and not torch.is_grad_enabled()
    )


def _group_bytes(query: torch.Tensor, key: torch.Tensor) -> int:
    """Return the bytes of the scores of all query heads of one key head, for one text."""
    return query.shape[1] // key.shape[1] * query.shape[2] ** 2 * query.element_size()


def _products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> torch.Tensor:
    texts, heads, tokens, size = query.shape
    groups = key.shape[1]
    shared = heads // groups  # query heads of a key head
    output = query.new_empty(texts, tokens, heads, size)
    places = output.view(texts, tokens, groups, shared, size).permute(0, 2, 3, 1, 4)
    queries = query.reshape(texts, groups, shared * tokens, size)
    none = query.new_zeros(())
    per_group = _group_bytes(query, key)
    width = max(1, min(groups, _SCORE_BYTES_PER_PRODUCT // per_group))  # key heads at a time
    # Texts at a time.
    height = max(1, _SCORE_BYTES_PER_PRODUCT // (per_group * groups)) if width == groups else 1
    for row in range(0, texts, height):
        rows = slice(row, row + height)
        for column in range(0, groups, width):
            part = (rows, slice(column, column + width))
            left, right, weighed = (tensor[part].flatten(0, 1) for tensor in (queries, key, value))
            scores = torch.baddbmm(none, left, right.transpose(1, 2), beta=0, alpha=scaling)
            place = places[part]
            if mask is not None:
                _hide(scores.view(*place.shape[:-1], tokens), mask[rows, :, None])
            place.copy_(torch.bmm(scores.softmax(-1), weighed).view(place.shape))
    return output


def _hide(scores: torch.Tensor, mask: torch.Tensor) -> None:
    # The lowest number instead of minus infinity: a padding token that sees nothing must not become NaN.
    if mask.dtype == torch.bool:
        scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    else:
        scores.add_(mask)


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
        _use(model, FLOAT32_ATTENTION, _float32_attention)
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


def use_product_attention(model: Any) -> bool:
    """Make a transformers model use this attention, in place.

    Returns:
        Whether the model uses it; models with their own attention keep theirs.
    """
    if not _has_sdpa(model):
        return False
    _use(model, PRODUCT_ATTENTION, product_attention)
    return True


def _has_sdpa(model: Any) -> bool:
    """Return True if a model uses `sdpa`, and transformers can give it another attention."""
    uses = getattr(model.config, "_attn_implementation", None) == "sdpa"
    return uses and bool(getattr(model, "is_backend_compatible", lambda: False)())


def _use(model: Any, name: str, attention: Callable[..., Any]) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface  # lazy: transformers
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # lazy: transformers

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(name)
