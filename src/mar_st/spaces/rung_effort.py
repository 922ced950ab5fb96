"""Search effort that a rung needs: a graph of the teacher's documents, searched with the rung's queries.

A graph finds the neighbours of the teacher's own queries with little effort (`ef`, the candidates that a
search keeps). The vectors of a weaker encoder are elsewhere, and may need more effort to find the same share
of the results of exact search. The report says what to expect; `mar index tune` sets the effort on an index.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.index import flat
from mar_st.index.tune import RECALL_DEPTH, calibrate
from mar_st.index.vectors import LADDERS, VectorIndex, Vectors, build_settings, build_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: Share of the exact ten nearest documents that must be found.
TARGET_RECALL = 0.99

#: Maximum documents and queries of a measurement, evenly drawn.
MAX_DOCUMENTS, MAX_QUERIES = 100_000, 1000


@dataclass(frozen=True)
class Graph:
    """An HNSW index of documents, built as `mar index build --kind hnsw` builds it.

    Attributes:
        searchable: The index.
        vectors: Vectors from which it was built, `(documents, dim)` float32.
        params: Build settings.
    """

    searchable: VectorIndex
    vectors: np.ndarray
    params: dict[str, Any]

    def effort(self, queries: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return the least effort with which the queries find their own exact neighbours.

        Args:
            queries: Vectors of the queries of each task, `(queries, dim)`.

        Returns:
            `ef`, its `recall@10`, and `reached`: whether this reaches `TARGET_RECALL`.
        """
        sampled = _drawn(
            np.concatenate([np.asarray(part, dtype=np.float32) for part in queries]), MAX_QUERIES
        )
        _, rows = flat.search(sampled, self.vectors, RECALL_DEPTH)
        calibrated = calibrate(self.searchable.search, sampled, rows, TARGET_RECALL, LADDERS["hnsw"])
        return {"ef": calibrated.pop("search")["ef"], **calibrated}

    def about(self, queries: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return how the effort was measured, and what the teacher's own queries need.

        Args:
            queries: The teacher's vectors of the queries of each task.
        """
        return {
            "kind": "hnsw", **self.params, "documents": len(self.vectors),
            "queries": min(sum(map(len, queries)), MAX_QUERIES), "target": TARGET_RECALL,
            "teacher": self.effort(queries),
        }  # fmt: skip


@contextmanager
def graph_of(documents: Sequence[np.ndarray]) -> Iterator[Graph | None]:
    """Build a graph for as long as the context lasts.

    Args:
        documents: Vectors of the documents of each task, as stored in an index. Equal vectors count once.

    Yields:
        The graph; `None` without documents, or if FAISS is not installed.
    """
    if not documents or find_spec("faiss") is None:
        yield None
        return

    vectors = _distinct(np.concatenate([np.asarray(part, dtype=np.float32) for part in documents]))
    vectors = _drawn(vectors, MAX_DOCUMENTS)
    params = build_settings("hnsw", {}, vectors.shape[1], len(vectors))
    with tempfile.TemporaryDirectory() as name:
        build_vectors(Path(name), "hnsw", params, Vectors([(vectors, None)]))
        yield Graph(VectorIndex(Path(name), "hnsw", *vectors.shape), vectors, params)


def _distinct(vectors: np.ndarray) -> np.ndarray:
    """Return the distinct vectors in the order of their first occurrence; ties have no fixed order."""
    rows = np.ascontiguousarray(vectors).view(np.dtype((np.void, vectors.itemsize * vectors.shape[1])))
    return vectors[np.sort(np.unique(rows.ravel(), return_index=True)[1])]


def _drawn(vectors: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` evenly drawn vectors, C-contiguous."""
    if len(vectors) > most:
        vectors = vectors[np.linspace(0, len(vectors) - 1, most).round().astype(int)]
    return np.ascontiguousarray(vectors)
