"""Exact search in C++, for sizes, strides and masks of any kind, against numpy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from mar_st.kernels import exact
from tests.fuzz import sanitized
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

missing, environment = sanitized.missing, sanitized.environment


def prepare(_: Path) -> Target:
    """Set up the target: the exact search kernel, built with sanitizers."""
    sanitized.use()
    exact.exact_search(1)  # compiled before the first case

    def check(data: bytes) -> str:
        try:
            asked = json.loads(data)
        except (ValueError, RecursionError):
            return "no input"
        if not isinstance(asked, dict):
            return "no input"

        def size(name: str, most: int, least: int = 1) -> int:
            value = asked.get(name, 0)
            return least + (abs(value) % most if type(value) is int else 0)

        count, total, dim, k = size("count", 20), size("total", 700), size("dim", 140), size("k", exact.MAX_K)
        k = min(k, 50 + total)
        values = np.random.default_rng(size("seed", 1000))
        kind = np.float16 if asked.get("half") else np.float32
        wide = size("wide", 40, 0)
        held = sanitized.Memory(total * (dim + wide) * np.dtype(kind).itemsize)
        vectors = held.array.view(kind).reshape(total, dim + wide)
        # Small whole numbers: sums are exact in any order, so results are equal to the bit.
        vectors[:] = values.integers(-4, 5, vectors.shape)
        queries = values.integers(-4, 5, (count, dim)).astype(np.float32)
        vectors = vectors[:, :dim]
        passed = values.random(total) < size("share", 11, 0) / 10 if asked.get("mask") else None
        bits = None if passed is None else np.packbits(passed, bitorder="little")
        search = exact.exact_search(size("threads", 4))
        assert search is not None
        assert exact.takes(vectors, k)
        scores, rows = search.search(queries, vectors, k, bits)
        expected = queries @ vectors.astype(np.float32).T
        if passed is not None:
            expected[:, ~passed] = -np.inf
        order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(expected, order, 1)
        order[np.isneginf(best)] = -1
        kept = order.shape[1]
        assert (scores[:, :kept] == best).all()
        assert (rows[:, :kept] == order).all()
        assert (rows[:, kept:] == -1).all()
        return f"half {bool(asked.get('half'))} mask {passed is not None} wide {wide > 0}"

    seed = {
        "count": 3,
        "total": 100,
        "dim": 16,
        "k": 10,
        "seed": 1,
        "half": False,
        "mask": False,
        "share": 5,
        "wide": 0,
        "threads": 1,
    }
    changes: list[dict[str, object]] = [
        {}, {"half": True}, {"mask": True}, {"half": True, "mask": True, "wide": 3}, {"k": 4000, "total": 0},
        {"dim": 0, "count": 0}, {"threads": 3, "total": 600, "mask": True, "share": 0},
    ]  # fmt: skip
    return Target([json.dumps({**seed, **one}).encode() for one in changes], check)
