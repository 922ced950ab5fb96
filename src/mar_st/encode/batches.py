"""Batches of texts by a budget of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def token_batches(
    lengths: Sequence[int] | np.ndarray, budget: int, *, padded: bool = True, rows: int | None = None
) -> list[np.ndarray]:
    """Split texts into batches of about `budget` tokens, longest texts first.

    Texts of the same length are batched together, so there is almost no padding. The order depends only on
    the lengths.

    Args:
        lengths: Tokens of each text, `(n,)`.
        budget: Maximum number of tokens of a batch, padding included; a longer text is a batch of its own.
        padded: Whether texts are padded to the longest of their batch; else they are laid end to end.
        rows: Maximum number of texts of a batch; default no limit.

    Returns:
        Row numbers of each batch, int64; every row occurs once.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    most = rows or len(order)
    batches, start, total = [], 0, 0
    for place, row in enumerate(order):
        length = int(sizes[row])
        # Sorted, so the first text of a batch is its longest.
        after = int(sizes[order[start]]) * (place - start + 1) if padded else total + length
        if place > start and (after > budget or place - start >= most):
            batches.append(order[start:place])
            start, total = place, 0
        total += length
    if start < len(order):
        batches.append(order[start:])
    return batches
