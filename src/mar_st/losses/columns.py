"""Vectors of the columns of a batch, with little padding.

Rows may be grouped into batches by length (`length_groups`), but each row has one length there: if a row has
a short query, a long positive and a short negative, its columns are still padded. Here the texts of a column
are encoded a few at a time, long ones together, and put back into their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

__all__ = ["SPANS", "embed_columns", "spans_of"]

#: Key of a column's features that holds its spans (`spans_of`), an array that stays on the host.
SPANS = "spans"

#: Overhead of a forward pass, in tokens of equal cost (small encoders, CPU).
PASS_OVERHEAD_TOKENS = 512

#: Maximum number of passes that a column is encoded in.
MAX_PASSES = 16

#: Passes of a column if several processes train together: all need the same number, because data-parallel
#: modules exchange their buffers in each.
DISTRIBUTED_PASSES = 4

#: Minimum number of texts in a pass, so that no pass has a single text (code would be compiled again for it).
MIN_PASS_TEXTS = 4


def embed_columns(model: nn.Module, features: Iterable[dict[str, Any]]) -> list[Tensor]:
    """Return the vectors of every column, `(rows, dim)` each, in their order.

    The first column is encoded by itself; the others together if they go through one encoder, as
    sentence-transformers' function of this name does. Gradients are the same up to rounding and the drawn
    dropout. If the features contain their spans (see `SPANS`), nothing waits for the device.

    Args:
        model: The model.
        features: Output of the model's tokenizer for each column.
    """
    first, *others = (without_spans(column) for column in features)
    embedded = [_embed(model, *first)]
    merged = merge_feature_batches([column for column, _ in others]) if len(others) > 1 else None
    if merged is None:
        return [*embedded, *(_embed(model, *column) for column in others)]
    spans = [of_column for _, of_column in others if of_column is not None]
    whole = np.concatenate(spans, axis=1) if len(spans) == len(others) else None
    vectors = _embed(model, merged, whole)
    return [*embedded, *vectors.reshape(len(others), -1, *vectors.shape[1:]).unbind(0)]


def spans_of(mask: Tensor) -> np.ndarray:
    """Return the first position of each text and the one after its last, `(2, rows)` int32.

    This waits for a mask on a device, so collators call it before they send the batch there.
    """
    first, end = _ends(mask)
    return torch.stack([first, end]).to("cpu", torch.int32).numpy()


def without_spans(features: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the features of a column as a model takes them, and the spans that a collator added."""
    return {name: value for name, value in features.items() if name != SPANS}, features.get(SPANS)


def longest_first(mask: Tensor, spans: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Return row numbers by descending width, on the device and on the host, without a transfer or wait."""
    first, end = _ends(mask)
    order = torch.argsort(end - first, descending=True, stable=True)
    return order, np.argsort(spans[0] - spans[1], kind="stable")


def _ends(mask: Tensor) -> tuple[Tensor, Tensor]:
    attended = mask.bool()
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    end = (attended * places).amax(dim=1)
    first = attended.to(torch.uint8).argmax(dim=1)
    return first, end


def _embed(model: nn.Module, features: dict[str, Any], spans: np.ndarray | None) -> Tensor:
    if can_be_cut(features) and len(features["attention_mask"]) >= 2 * MIN_PASS_TEXTS:
        mask = features["attention_mask"]
        spans = spans_of(mask) if spans is None else spans
        order, host_order = longest_first(mask, spans)
        sizes = _sizes((spans[1] - spans[0])[host_order].tolist())
        if len(sizes) > 1:
            cuts = np.cumsum(sizes)[:-1]
            parts = [
                model(some_rows(features, rows, spans[:, host_rows]))["sentence_embedding"]
                for rows, host_rows in zip(torch.split(order, sizes), np.split(host_order, cuts), strict=True)
            ]
            return torch.cat(parts)[torch.argsort(order)]
    whole: Tensor = model(features)["sentence_embedding"]
    return whole


def can_be_cut(features: dict[str, Any]) -> bool:
    """Return True if every tensor has one row per text: no packed texts, no scalar prompt length."""
    mask = features.get("attention_mask")
    if mask is None or mask.ndim != 2:
        return False
    return all(
        value.ndim >= 1 and len(value) == len(mask)
        for value in features.values()
        if isinstance(value, Tensor)
    )


def _sizes(lengths: Sequence[int]) -> list[int]:
    """Return the number of texts, sorted by descending length, in each pass."""
    most = min(MAX_PASSES, len(lengths) // MIN_PASS_TEXTS)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return _even(len(lengths), min(DISTRIBUTED_PASSES, most))
    candidates = (_even(len(lengths), passes) for passes in range(1, most + 1))
    return min(candidates, key=lambda sizes: _cost(lengths, sizes))


def _even(rows: int, passes: int) -> list[int]:
    least, more = divmod(rows, passes)
    return [least + 1] * more + [least] * (passes - more)


def _cost(lengths: Sequence[int], sizes: Sequence[int]) -> int:
    start = cost = 0
    for size in sizes:
        cost += size * lengths[start] + PASS_OVERHEAD_TOKENS
        start += size
    return cost


def some_rows(features: dict[str, Any], chosen: Tensor | slice, spans: np.ndarray) -> dict[str, Any]:
    """Return some rows of the features, without the columns that are padding in all of them.

    Args:
        features: Features of a column.
        chosen: The rows, on the device.
        spans: Their spans, `(2, chosen)`.
    """
    width = features["attention_mask"].shape[1]
    first, end = int(spans[0].min()), int(spans[1].max())
    selected = {}
    for name, value in features.items():
        if isinstance(value, Tensor):
            value = value[chosen]
            if value.ndim >= 2 and value.shape[1] == width > end - first > 0:
                value = value[:, first:end].contiguous()  # other strides, or a view, would be compiled again
        selected[name] = value
    return selected
