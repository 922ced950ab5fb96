"""Vectors of the columns of a batch, with little padding.

The rows of a batch may be sorted by length with others (`length_groups`), but by one length each: where a
row has a short query, a long positive and a short negative, its columns are padded all the same. Here the
texts of a column are encoded a few at a time, the long ones together, and put back into their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

__all__ = ["embed_columns"]

#: A forward pass costs about as much more than its operations as so many tokens do (small encoders, CPU).
PASS = 512

#: Passes that a column is encoded in at most.
PASSES = 16

#: Passes of a column where several processes train together: they all must make as many, because
#: data-parallel modules exchange their buffers in each.
SHARED = 4

#: Texts of a pass at least, so that no pass is one text (which compiled code would be made anew for).
FEWEST = 4


def embed_columns(model: nn.Module, features: Iterable[dict[str, Any]]) -> list[Tensor]:
    """Vectors of every column, `(rows, dim)` each, in their order.

    The first column is encoded by itself; the others together where they go through one encoder, as
    sentence-transformers' function of this name does. Gradients are the same to rounding, up to the dropout
    that is drawn.

    Args:
        model: The model.
        features: What its tokenizer made of each column.
    """
    first, *others = features
    found = [_embed(model, first)]
    merged = merge_feature_batches(others) if len(others) > 1 else None
    if merged is None:
        return [*found, *(_embed(model, column) for column in others)]
    vectors = _embed(model, merged)
    return [*found, *vectors.reshape(len(others), -1, *vectors.shape[1:]).unbind(0)]


def _embed(model: nn.Module, features: dict[str, Any]) -> Tensor:
    mask = features.get("attention_mask")
    whole: Tensor
    if not _can_be_cut(features, mask):
        whole = model(features)["sentence_embedding"]
        return whole
    assert mask is not None  # noqa: S101 -- _can_be_cut saw to it
    lengths = mask.sum(dim=1)
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = _sizes(lengths[order].tolist())
    if len(sizes) == 1:
        whole = model(features)["sentence_embedding"]
        return whole
    parts = [
        model(_rows(features, mask, chosen))["sentence_embedding"] for chosen in torch.split(order, sizes)
    ]
    return torch.cat(parts)[torch.argsort(order)]


def _can_be_cut(features: dict[str, Any], mask: Tensor | None) -> bool:
    """Whether every tensor is one row per text: no texts laid end to end, no prompt's length."""
    if mask is None or mask.ndim != 2 or len(mask) < 2 * FEWEST:
        return False
    return all(
        value.ndim >= 1 and len(value) == len(mask)
        for value in features.values()
        if isinstance(value, Tensor)
    )


def _sizes(lengths: Sequence[int]) -> list[int]:
    """How many texts, sorted by falling length, go into each pass."""
    most = min(PASSES, len(lengths) // FEWEST)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return _even(len(lengths), min(SHARED, most))
    candidates = (_even(len(lengths), passes) for passes in range(1, most + 1))
    return min(candidates, key=lambda sizes: _cost(lengths, sizes))


def _even(rows: int, passes: int) -> list[int]:
    least, more = divmod(rows, passes)
    return [least + 1] * more + [least] * (passes - more)


def _cost(lengths: Sequence[int], sizes: Sequence[int]) -> int:
    start = cost = 0
    for size in sizes:
        cost += size * lengths[start] + PASS
        start += size
    return cost


def _rows(features: dict[str, Any], mask: Tensor, chosen: Tensor) -> dict[str, Any]:
    """Some rows of the features, without the columns that are padding in all of them."""
    used = torch.nonzero(mask[chosen].any(dim=0)).flatten()
    first, end = int(used[0]), int(used[-1]) + 1
    found = {}
    for name, value in features.items():
        if isinstance(value, Tensor):
            value = value[chosen]
            if value.ndim >= 2 and value.shape[1] == mask.shape[1] > end - first:
                value = value[:, first:end].contiguous()  # other strides, or a view, would be compiled anew
        found[name] = value
    return found
