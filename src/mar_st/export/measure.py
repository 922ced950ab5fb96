"""What an exported encoder costs, and how near its vectors are to the original's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.online.protocol import QueryEncoder

#: Maximum texts that are timed one by one, rounds over them, and texts per call when throughput is measured.
TIMED_TEXTS, ROUNDS, BATCH_TEXTS = 64, 3, 16

#: Lowest mean cosine to the original's vectors, and between a text's vectors computed alone and in a batch:
#: answers must not depend on concurrent requests, as they do if all activations of a batch share one scale.
MIN_COSINE, MIN_ALONE = 0.99, 0.9999


def measure(encoder: QueryEncoder, texts: Sequence[str], original: np.ndarray) -> dict[str, Any]:
    """Return what an exported encoder costs and loses.

    Args:
        encoder: The encoder.
        texts: Queries, without prompts.
        original: Their vectors by the original, `(len(texts), dim)`.

    Returns:
        `p50_ms` of one query, `per_second` in calls of `BATCH_TEXTS` queries, `cosine_min` and `cosine_mean`
        to the original's vectors, `alone_cosine`, the smallest cosine of a text's vectors computed alone and
        together, and `within_limits`.

    Raises:
        MarError: A value is not finite.
    """
    together = encoder.encode(texts)
    if not np.isfinite(together).all():
        raise MarError("its vectors hold NaN or infinite values")
    alone = np.concatenate([encoder.encode([text]) for text in texts[:TIMED_TEXTS]])
    close, same = cosines(original, together), cosines(alone, together[: len(alone)])
    lowest, mean, steady = (round(float(value), 6) for value in (close.min(), close.mean(), same.min()))
    return {
        **speed(encoder.encode, texts),
        "cosine_min": lowest,
        "cosine_mean": mean,
        "alone_cosine": steady,
        "within_limits": mean >= MIN_COSINE and steady >= MIN_ALONE,
    }


def speed(call: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> dict[str, float]:
    """Return `p50_ms` of a call with one text, and texts `per_second` in calls of `BATCH_TEXTS`."""
    seconds = []
    for number in range(ROUNDS + 1):
        for text in texts[:TIMED_TEXTS]:
            started = time.perf_counter()
            call([text])
            if number:  # the first round is not counted
                seconds.append(time.perf_counter() - started)
    blocks = [texts[start : start + BATCH_TEXTS] for start in range(0, min(len(texts), 128), BATCH_TEXTS)]
    for block in blocks:
        call(block)
    started = time.perf_counter()
    for block in blocks:
        call(block)
    return {
        "p50_ms": round(float(np.median(seconds)) * 1e3, 3),
        "per_second": round(sum(map(len, blocks)) / (time.perf_counter() - started), 1),
    }


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosine of each row with the same row of another array, `(n,)` float64."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    similarities: np.ndarray = np.einsum("ij,ij->i", first, second) / np.maximum(norms, 1e-30)
    return similarities
