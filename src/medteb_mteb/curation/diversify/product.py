"""Matrix products of rounded vectors: the pairs that may exceed a threshold, and those that certainly do.

A product of bfloat16 matrices is several times as fast as one in float32 where the processor has the
instructions. Each of its similarities differs from the one that FAISS computes by at most a margin, which
follows from the rounding errors of the vectors:

    |s' - s| <= |u - u'| |v| + |u'| |v - v'|     rounding of the vectors, both lengths measured
              + 2 d 2^-24 |u'| |v'|              sums in float32, in any order
              + 2^-8 |s'|                        rounding of the result to bfloat16 (none in float32)
              + d 2^-24 |u| |v|                  rounding in FAISS

So a pair whose product is more than the margin below the threshold is not above it, and a pair whose product
is more than the margin above it is. FAISS decides about the few pairs in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

__all__ = ["CandidatePairs", "Product", "Rounded"]

#: Rows of a product that are scanned at once; bounds the memory for pairs.
ROWS_PER_SLICE = 512

_INTEGER_TYPES = {torch.bfloat16: (torch.int16, np.int16), torch.float32: (torch.int32, np.int32)}
#: Bound of the relative rounding of a result.
_RESULT_ERROR = {torch.bfloat16: 2.0**-8, torch.float32: 0.0}


@dataclass
class Rounded:
    """Vectors in the type that products are computed in.

    Attributes:
        values: `(n, dim)` bfloat16 or float32.
        length: Largest length of a rounded vector.
        lost: Largest length of the rounding error of a vector.
    """

    values: torch.Tensor
    length: float
    lost: float


class CandidatePairs(NamedTuple):
    """Pairs that may be above the threshold.

    Attributes:
        left: Row on the left, `(p,)` int64.
        right: Row on the right, `(p,)` int64.
        sure: Whether the pair is certainly above the threshold, `(p,)` bool.
    """

    left: np.ndarray
    right: np.ndarray
    sure: np.ndarray


class Product:
    """Finds pairs of vectors above a threshold.

    Args:
        threshold: Similarity threshold, positive.
        dim: Width of the vectors.
        dtype: `bfloat16` or `float32`; `None` takes the faster one. The resulting pairs are the same.
    """

    def __init__(self, threshold: float, dim: int, dtype: torch.dtype | None = None) -> None:
        self.threshold, self.dim = threshold, dim
        self.dtype = dtype or faster(dim)
        self._buffer = torch.empty(0, dtype=self.dtype)

    def round(self, vectors: np.ndarray) -> Rounded:
        """Return vectors `(n, dim)` float32 in the type of the products."""
        exact = torch.from_numpy(vectors)
        values = exact.to(self.dtype)
        if self.dtype == torch.float32:
            return Rounded(values, _longest(vectors), 0.0)
        back = values.float().numpy()
        return Rounded(values, _longest(back), _longest(vectors - back))

    def margin(self, left: Rounded, right: Rounded) -> float:
        """Return the largest error of a product as an estimate of the similarity."""
        accumulated = 3 * self.dim * 2.0**-24 * (left.length + left.lost) * (right.length + right.lost)
        rounding = left.lost * (right.length + right.lost) + left.length * right.lost
        inexact = rounding + accumulated
        # A result near the threshold is at most this large before its own rounding.
        return 1.01 * (inexact + _RESULT_ERROR[self.dtype] * (self.threshold + inexact) * 1.01)

    def find(self, left: Rounded, right: Rounded, *, earlier: bool = False) -> CandidatePairs:
        """Return the pairs that may be above the threshold, by row on the left.

        Args:
            left: `m` vectors.
            right: `n` vectors.
            earlier: `left` and `right` are the same vectors; only pairs with an earlier vector are returned.
        """
        m, n = len(left.values), len(right.values)
        if self._buffer.numel() < m * n:
            self._buffer = torch.empty(m * n, dtype=self.dtype)
        scores = self._buffer[: m * n].view(m, n)
        torch.mm(left.values, right.values.t(), out=scores)
        if earlier:
            scores.tril_(-1)
        margin = self.margin(left, right)
        low, high = (
            self._bits(self.threshold - margin, up=False),
            self._bits(self.threshold + margin, up=True),
        )
        # Positive floats are ordered as the integers of the same bits, and negative ones are negative.
        bits = scores.view(_INTEGER_TYPES[self.dtype][0])
        near = torch.nonzero(bits.amax(dim=1) >= low)[:, 0].numpy() if m and n else np.empty(0, np.int64)
        pairs = []
        for start in range(0, len(near), ROWS_PER_SLICE):
            rows = near[start : start + ROWS_PER_SLICE]
            part = bits.numpy()[rows]
            row, right_row = np.nonzero(part >= low)
            pairs.append(CandidatePairs(rows[row], right_row, part[row, right_row] > high))
        if not pairs:
            none = np.empty(0, dtype=np.int64)
            return CandidatePairs(none, none, none.astype(bool))
        return CandidatePairs(*(np.concatenate(column) for column in zip(*pairs, strict=True)))

    def _bits(self, value: float, *, up: bool) -> int:
        """Return the bits of the type's nearest number not above (`up`: not below) a positive value."""
        number = torch.tensor(value, dtype=torch.float64).to(self.dtype)
        bits = int(number.view(_INTEGER_TYPES[self.dtype][0]))
        if up:
            return bits + (float(number) < value)
        return bits - (float(number) > value)


@cache
def faster(dim: int) -> torch.dtype:
    """Return the type whose products are computed faster on this machine and keep to their margin."""
    times = {torch.float32: _seconds(torch.float32, dim)}
    if keeps_margin(Product(0.5, dim, torch.bfloat16)):
        times[torch.bfloat16] = _seconds(torch.bfloat16, dim)
    return min(times, key=lambda dtype: times[dtype])


def keeps_margin(product: Product) -> bool:
    """Return True if products of vectors near the threshold are within the stated margin of error.

    They are not if the hardware accumulates in bfloat16, or torch is set to a lower precision.
    """
    rng = np.random.default_rng(0)
    left, away = rng.standard_normal((2, 64, product.dim))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    right = product.threshold * left + np.sqrt(1 - product.threshold**2) * away
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    a, b = left.astype(np.float32), right.astype(np.float32)
    x, y = product.round(a), product.round(b)
    got = torch.mm(x.values, y.values.t()).double().diagonal().numpy()
    true = np.einsum("nd,nd->n", a.astype(np.float64), b.astype(np.float64))
    near = np.abs(true - product.threshold) < 0.1
    # The margin grows with the result, which may be a little above the threshold here.
    return bool((np.abs(got - true)[near] <= product.margin(x, y) + 0.1 * _RESULT_ERROR[product.dtype]).all())


def _seconds(dtype: torch.dtype, dim: int) -> float:
    matrix = torch.ones(512, dim, dtype=dtype)
    out = torch.empty(512, 512, dtype=dtype)
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(matrix, matrix.t(), out=out)
        spent.append(time.perf_counter() - start)
    return min(spent)


def _longest(vectors: np.ndarray) -> float:
    """Return the length of the longest vector, and a little more."""
    if not len(vectors):
        return 0.0
    return 1.001 * float(np.sqrt(np.einsum("nd,nd->n", vectors, vectors).max()))
