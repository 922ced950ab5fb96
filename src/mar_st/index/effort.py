"""The effort that a query encoder needs: search settings measured with its own queries.

The vectors of a weak encoder lie further from the documents than those of a strong one, so a graph or cells
find fewer of their true neighbours with the same settings. `tune_effort` finds the cheapest settings with
which an index returns what exact search returns for the same vectors. They are kept in the manifest under the
digest of the encoder's modules, so that every form of the encoder (saved, exported) is recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.index.base import Index
from mar_st.index.errors import IndexingError
from mar_st.index.folder import FolderIndex
from mar_st.index.registry import kind_of
from mar_st.index.searcher import Searcher
from mar_st.index.tune import RECALL_DEPTH, ExactResults, calibrate, recall
from mar_st.online.protocol import encoder_name, encoder_origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.online import QueryEncoder

#: Maximum number of queries to measure with, spread evenly over those given.
MAX_EFFORT_QUERIES = 1000

#: Recall to reach if neither the caller nor the index names one.
DEFAULT_RECALL = 0.95


class _VectorRows:
    """An index folder that is searched for row numbers."""

    def __init__(self, index: FolderIndex) -> None:
        self.index = index

    def search(
        self, queries: np.ndarray, k: int, *, settings: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and rows, see `mar_st.index.tune.Searched`."""
        scored = self.index.find(queries, k, None, settings)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        for number, keys in enumerate(scored.keys):
            rows[number, : len(keys)] = keys
        return scored.scores, rows


def tune_effort(
    index: str | Path,
    queries: Sequence[str],
    *,
    encoder: QueryEncoder | str | Path | None = None,
    query: str | None = None,
    target: float | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Measure the effort that a query encoder needs on an index, and store it in the index.

    `mar search`, `mar serve` and `Searcher` then use it whenever they search with this encoder. Other
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
        IndexingError: The index is exact or not a folder, there are no queries, the
            recall is not between 0 and 1, or the encoder does not belong to the index.
    """
    opened = Index.open(index)
    if not isinstance(opened, FolderIndex):
        raise IndexingError(f"{index} is not an index folder; only index folders store tuned settings.")
    kind = kind_of(opened.kind)
    if kind.EXACT:
        raise IndexingError(
            f"{index} is of kind {opened.kind}: it compares with all vectors, so every encoder finds its "
            "neighbours and there is nothing to tune."
        )
    if target is None:
        target = float((opened.manifest["measured"] or {}).get("target", DEFAULT_RECALL))
    if not 0 < target <= 1:
        raise IndexingError(f"recall must be above 0 and at most 1; got {target}.")
    if not queries:
        raise IndexingError("There are no queries to measure with.")
    searcher = Searcher.open(
        opened, opened.model_source() if encoder is None else encoder, query=query, threads=threads
    )
    origin = encoder_origin(searcher.encoder)
    if origin is None:
        raise IndexingError("The encoder has no digest, so tuned settings cannot be stored for it.")
    chosen = np.unique(
        np.linspace(0, len(queries) - 1, min(MAX_EFFORT_QUERIES, len(queries))).round().astype(int)
    )
    vectors = searcher.vectors([queries[place] for place in chosen])
    expected, rows = ExactResults(vectors, opened.exact(vectors, RECALL_DEPTH)), _VectorRows(opened)
    before = {
        "search": opened.settings,
        f"recall@{RECALL_DEPTH}": round(recall(rows, expected, opened.settings), 4),
    }
    measured = calibrate(rows, expected, target, kind.LADDER)
    entry = {"query": encoder_name(searcher.encoder), **measured, "target": target, "queries": len(vectors)}
    opened.keep("efforts", origin, entry)
    return {**entry, "before": before}
