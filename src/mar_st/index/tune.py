"""Recall of an index against exact search, and the cheapest search settings that reach a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from mar_st.index import flat
from mar_st.index.source import VECTORS_PER_READ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.index.source import VectorSource

#: Number of results at which recall is measured.
RECALL_DEPTH = 10

#: Maximum number of queries to measure with.
MAX_RECALL_QUERIES = 200

#: Distance of a generated query from a corpus vector, relative to the spread of the corpus.
SHIFT = 0.5


class Searched(Protocol):
    """Object that searches the rows of a source by vectors."""

    def search(
        self, queries: np.ndarray, k: int, *, settings: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and rows, `(n, k)` float32 and int64."""


class ExactResults(NamedTuple):
    """Queries and the documents that exact search finds for them.

    Attributes:
        queries: `(n, dim)` float32.
        rows: The best `RECALL_DEPTH` rows of each, `(n, RECALL_DEPTH)` int64; -1 where there are fewer.
    """

    queries: np.ndarray
    rows: np.ndarray


def exact_results(
    source: VectorSource, queries: np.ndarray | None, *, progress: bool = False
) -> ExactResults:
    """Return the exact results to compare with.

    Args:
        source: The vectors that are searched.
        queries: Query vectors; default: generated ones (`made_queries`).
        progress: Show a progress bar.
    """
    if queries is None:
        queries = made_queries(source)
    queries = np.ascontiguousarray(queries[:MAX_RECALL_QUERIES], dtype=np.float32)
    best = flat.top(
        np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64), RECALL_DEPTH
    )
    blocks = tqdm(
        source.blocks(),
        desc="exact results",
        total=-(-len(source) // VECTORS_PER_READ),
        unit="block",
        disable=not progress,
    )
    for number, block in enumerate(blocks):
        scores, rows = flat.search(queries, block, RECALL_DEPTH)
        block_best = scores, np.where(rows >= 0, rows + number * VECTORS_PER_READ, -1)
        best = flat.merge([best, block_best], RECALL_DEPTH)
    return ExactResults(queries, best[1])


def made_queries(source: VectorSource) -> np.ndarray:
    """Generate query vectors from the vectors of a corpus, `(n, dim)` float32.

    A query is not a document: a graph has links from the corpus vectors themselves, so recall measured with
    them is too high. Here each is moved by `SHIFT` times the difference of two others divided by the square
    root of 2 (which has the spread of the corpus), and scaled back to its length.
    """
    rng = np.random.default_rng(1)
    count = min(MAX_RECALL_QUERIES, len(source))
    rows = [np.sort(rng.choice(len(source), count, replace=False)) for _ in range(3)]
    start, first, second = (source.take(drawn).astype(np.float32) for drawn in rows)
    moved = start + SHIFT * (rng.permutation(first) - rng.permutation(second)) / np.float32(2**0.5)
    length, wanted = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (moved, start))
    return np.asarray(moved * (wanted / np.maximum(length, np.finfo(np.float32).tiny)), dtype=np.float32)


def recall(searched: Searched, expected: ExactResults, settings: Mapping[str, int]) -> float:
    """Return the share of the exact results that an index finds, as the mean over the queries."""
    _, rows = searched.search(expected.queries, RECALL_DEPTH, settings=settings)
    shares = [
        len(np.intersect1d(row, exact[exact >= 0])) / max(int((exact >= 0).sum()), 1)
        for row, exact in zip(rows, expected.rows, strict=True)
    ]
    return float(np.mean(shares))


def calibrate(
    searched: Searched, expected: ExactResults, target: float, ladder: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    """Return the cheapest settings that reach a recall on this index, otherwise the most thorough.

    Args:
        searched: The index.
        expected: Queries and their exact results.
        target: The recall.
        ladder: Search settings, from cheap to thorough.

    Returns:
        `search` (the settings), `recall@10` (measured), `reached`.
    """
    measured = 0.0
    settings: Mapping[str, int] = {}
    for settings in ladder:
        measured = recall(searched, expected, settings)
        if measured >= target:
            break
    return {
        "search": dict(settings),
        f"recall@{RECALL_DEPTH}": round(measured, 4),
        "reached": measured >= target,
    }
