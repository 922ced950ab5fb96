"""Draws of a bootstrap, and the paired randomisation test of means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["p_value", "resampled", "swapped_means"]

#: Values that are resampled at a time.
_MAX_VALUES = 1_000_000


def resampled(items: int, resamples: int, seed: int | Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Yield the draws of a bootstrap: items with replacement, `(some of the resamples, items)` at a time.

    The number per step bounds the memory and does not change the draws.

    Args:
        items: Number of items.
        resamples: Number of resamples in all.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _MAX_VALUES // items)
    for start in range(0, resamples, step):
        yield rng.integers(0, items, (min(step, resamples - start), items))


def swapped_means(
    differences: NDArray[np.float64], swaps: Iterable[NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Return the mean difference of two systems for each draw of a paired randomisation test, `(draws,)`.

    `medteb run` and `mar ablate` both test means this way. Each draws `swaps` from its own random stream, so
    that p-values of earlier reports and studies can be reproduced.

    Args:
        differences: Score of the first system minus that of the second, by item, `(items,)`.
        swaps: True for items whose two scores are swapped, `(some of the draws, items)` at a time.
    """
    return np.concatenate([np.where(swap, -differences, differences).mean(axis=1) for swap in swaps])


def p_value(observed: float, drawn: NDArray[np.float64]) -> float:
    """Return the two-sided p-value of a randomisation test.

    The observed assignment counts as one of the draws, so p is never 0 (Davison & Hinkley 1997, section 4.3).
    """
    extreme = int(np.sum(np.abs(drawn) >= abs(observed) - 1e-12))
    return (extreme + 1) / (len(drawn) + 1)
