"""Recall against exact search, and the cheapest search settings that reach a target.

The vectors of a weak query encoder lie further from the documents than those of a strong one, so a graph or
cells find fewer of their true neighbours with the same settings. `tune_effort` measures with the queries of
one encoder. The settings are kept in the manifest under the digest of the encoder's modules, so that every
form of the encoder (saved, exported) is recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.index import flat
from mar_st.index.base import Index
from mar_st.index.folder import FolderIndex, keep_effort
from mar_st.index.vectors import LADDERS
from mar_st.online.protocol import encoder_name, encoder_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mar_st.index.vectors import Vectors
    from mar_st.online import QueryEncoder

#: Number of results at which recall is measured.
RECALL_DEPTH = 10

#: Maximum number of queries to measure with when an index is built, and when an encoder is tuned.
MAX_RECALL_QUERIES, MAX_EFFORT_QUERIES = 200, 1000

#: Distance of a generated query from a corpus vector, relative to the spread of the corpus.
SHIFT = 0.5


def exact_rows(source: Vectors, queries: np.ndarray) -> np.ndarray:
    """Return the best `RECALL_DEPTH` rows of each query, `(n, RECALL_DEPTH)` int64; -1: there are fewer."""
    best: list[tuple[np.ndarray, np.ndarray]] = []
    start = 0
    for block in source.blocks():
        scores, rows = flat.search(queries, block, RECALL_DEPTH)
        best = [flat.merge([*best, (scores, np.where(rows >= 0, rows + start, -1))], RECALL_DEPTH)]
        start += len(block)
    return best[0][1]


def made_queries(source: Vectors) -> np.ndarray:
    """Generate query vectors from the vectors of a corpus, `(n, dim)` float32.

    A query is not a document: a graph has links from the corpus vectors themselves, so recall measured with
    them is too high. Here each is moved by `SHIFT` times the difference of two others divided by the square
    root of 2 (which has the spread of the corpus), and scaled back to its length.
    """
    rng = np.random.default_rng(1)
    count = min(MAX_RECALL_QUERIES, len(source))
    rows = [np.sort(rng.choice(len(source), count, replace=False)) for _ in range(3)]
    start, first, second = (source[drawn] for drawn in rows)
    moved = start + SHIFT * (rng.permutation(first) - rng.permutation(second)) / np.float32(2**0.5)
    length, wanted = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (moved, start))
    return np.asarray(moved * (wanted / np.maximum(length, np.finfo(np.float32).tiny)), dtype=np.float32)


def recall(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of the exact results that were found, as the mean over the queries.

    Args:
        found: Rows, `(n, k)`; -1 where there are fewer.
        expected: Rows of exact search, `(n, k)`.
    """
    shares = [
        len(np.intersect1d(row, exact[exact >= 0])) / max(int((exact >= 0).sum()), 1)
        for row, exact in zip(found, expected, strict=True)
    ]
    return float(np.mean(shares))


def calibrate(
    search: Callable[[np.ndarray, int, Mapping[str, int]], tuple[Any, np.ndarray]],
    queries: np.ndarray,
    expected: np.ndarray,
    target: float,
    ladder: Sequence[Mapping[str, int]],
) -> dict[str, Any]:
    """Return the cheapest settings that reach a recall, otherwise the most thorough.

    Args:
        search: Returns scores and rows for queries, a number of results and search settings.
        queries: `(n, dim)` float32.
        expected: Their exact results, see `exact_rows`.
        target: The recall.
        ladder: Search settings, from cheap to thorough.

    Returns:
        `search` (the settings), `recall@10` (measured), `reached`.
    """
    measured = 0.0
    settings: Mapping[str, int] = {}
    for settings in ladder:
        measured = recall(search(queries, RECALL_DEPTH, settings)[1], expected)
        if measured >= target:
            break
    return {
        "search": dict(settings),
        f"recall@{RECALL_DEPTH}": round(measured, 4),
        "reached": measured >= target,
    }


def tune_effort(
    index: str | Path,
    queries: Sequence[str],
    *,
    encoder: QueryEncoder | str | Path | None = None,
    query: str | None = None,
    target: float | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Measure the search settings that a query encoder needs on an index, and store them in the index.

    `mar search`, `mar serve` and `Searcher` then use them whenever they search with this encoder. Other
    encoders keep the settings that the index was built with.

    Args:
        index: Folder of the index.
        queries: Queries as users ask them; at most 1,000 of them are used.
        encoder: See `Searcher.open`; default the model that encoded the documents.
        query: See `Searcher.open`.
        target: Recall@10 against exact search with the same vectors; default that of the build.
        threads: Threads of the encoder.

    Returns:
        `query` (name of the encoder), `search` (the settings), `recall@10`, `reached`, `target`, `queries`
        (how many), `before`: settings and recall of this encoder with the index's own settings.

    Raises:
        MarError: The index is exact or not a folder, there are no queries, or the encoder does not belong to
            the index.
    """
    from mar_st.index.searcher import Searcher  # lazy: mar_st.online

    opened = Index.open(index)
    if not isinstance(opened, FolderIndex) or opened.kind == "exact":
        raise MarError(
            f"{index} is of kind {opened.kind} and has nothing to tune; a folder of another kind has."
        )
    if not queries:
        raise MarError("There are no queries to measure with.")
    target = float(opened.about["measured"]["target"]) if target is None else target
    searcher = Searcher.open(
        opened, opened.model_source() if encoder is None else encoder, query=query, threads=threads
    )
    origin = encoder_origin(searcher.encoder)
    if origin is None:
        raise MarError("The encoder has no digest, so tuned settings cannot be stored for it.")
    count = min(MAX_EFFORT_QUERIES, len(queries))
    chosen = np.linspace(0, len(queries) - 1, count).round().astype(int)
    vectors = searcher.vectors([queries[place] for place in chosen])
    expected = opened.exact(vectors, RECALL_DEPTH)

    def search(given: np.ndarray, k: int, settings: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
        found = opened.find(given, k, None, settings)
        rows = [[*keys, *[-1] * (k - len(keys))] for keys in found.keys]
        return found.scores, np.array(rows, dtype=np.int64)

    before = recall(search(vectors, RECALL_DEPTH, opened.settings)[1], expected)
    entry = {
        "query": encoder_name(searcher.encoder),
        **calibrate(search, vectors, expected, target, LADDERS[opened.kind]),
        "target": target,
        "queries": len(vectors),
    }
    with locked(opened.folder, MarError):
        keep_effort(opened.folder, origin, entry)
    return {**entry, "before": {"search": opened.settings, f"recall@{RECALL_DEPTH}": round(before, 4)}}
