"""Recall of an index against exact search, and the cheapest settings of searching that reach a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from mar_st.index import flat
from mar_st.index.source import BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.index.kinds import Kind, Searchable
    from mar_st.index.source import Source

#: Results that recall is measured at.
AT = 10

#: Queries that are measured with.
QUERIES = 200

#: Settings of searching by kind, from cheap to thorough.
LADDERS: dict[Kind, list[dict[str, int]]] = {
    "exact": [{}],
    "hnsw": [{"ef": ef, "rescore": 2} for ef in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)],
    "ivf-pq": [
        {"nprobe": probes, "rescore": again}
        for probes, again in (
            (4, 5), (8, 5), (8, 10), (16, 10), (32, 10), (32, 20), (64, 20), (128, 20), (128, 50), (256, 50),
            (512, 100),
        )
    ],
    "int8": [{"rescore": again} for again in (1, 2, 4, 8)],
    "binary": [{"rescore": again} for again in (3, 5, 10, 20, 40, 80, 160)],
}  # fmt: skip


class Trial(NamedTuple):
    """Queries and the documents that exact search finds for them.

    Attributes:
        queries: `(n, dim)` float32.
        rows: The best `AT` rows of each, `(n, AT)` int64; -1 where there are fewer.
        own: The row of the corpus that each query is, `(n,)` int64, which is left out; -1: none.
    """

    queries: np.ndarray
    rows: np.ndarray
    own: np.ndarray


def trial(source: Source, queries: np.ndarray | None, *, progress: bool = False) -> Trial:
    """Exact results to compare with.

    Args:
        source: The vectors that are searched.
        queries: Vectors of queries; default evenly drawn ones of the corpus, each without itself as a result.
        progress: Show a bar.
    """
    own = np.full(QUERIES, -1, dtype=np.int64)
    if queries is None:
        count = min(QUERIES, len(source))
        own = np.sort(np.random.default_rng(1).choice(len(source), count, replace=False)).astype(np.int64)
        queries = source.take(own)
    else:
        queries = np.ascontiguousarray(queries[:QUERIES], dtype=np.float32)
        own = own[: len(queries)]
    best = flat.top(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64), AT + 1)
    blocks = tqdm(
        source.blocks(),
        desc="exact results",
        total=-(-len(source) // BLOCK),
        unit="block",
        disable=not progress,
    )
    for number, block in enumerate(blocks):
        scores, rows = flat.search(queries, block, AT + 1)
        found = scores, np.where(rows >= 0, rows + number * BLOCK, -1)
        best = flat.merge([best, found], AT + 1)
    return Trial(queries, _without(best[1], own), own)


def recall(searchable: Searchable, asked: Trial, settings: Mapping[str, int]) -> float:
    """Share of the exact results that an index finds, in the mean over the queries."""
    _, rows = searchable.search(asked.queries, AT + 1, settings=settings)
    found = _without(rows, asked.own)
    shares = [
        len(np.intersect1d(row, exact[exact >= 0])) / max(int((exact >= 0).sum()), 1)
        for row, exact in zip(found, asked.rows, strict=True)
    ]
    return float(np.mean(shares))


def calibrate(searchable: Searchable, asked: Trial, target: float) -> dict[str, Any]:
    """The cheapest settings that reach a recall on this index, or else the most thorough.

    Returns:
        `search` (the settings), `recall@10` (measured), `reached`.
    """
    measured = 0.0
    settings: dict[str, int] = {}
    for settings in LADDERS[searchable.kind]:
        measured = recall(searchable, asked, settings)
        if measured >= target:
            break
    return {"search": settings, f"recall@{AT}": round(measured, 4), "reached": measured >= target}


def _without(rows: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The first `AT` rows of each query that are not its own, `(n, AT)`."""
    other = rows != own[:, None]
    order = np.argsort(~other, axis=1, kind="stable")[:, :AT]
    return np.where(np.take_along_axis(other, order, 1), np.take_along_axis(rows, order, 1), -1)
