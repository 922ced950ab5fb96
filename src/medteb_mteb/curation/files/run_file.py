"""An existing run as a retriever for pools: the search was done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.data.trec import read_run
from mar_st.mining.retrievers import Retrieved
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RunFile"]


class RunFile:
    """Retrieves the documents that a run lists (TREC or JSON, see `mar_st.data.trec.read_run`).

    A query that the run does not list has no results.

    Args:
        path: The run.
        name: Name of the run in pools; default the file's name without its suffix.
        queries: Ids of the queries, in the order of the pool.
        documents: Ids of the documents, in the order of the pool.

    Raises:
        MarError: The run cannot be read, or lists other queries or documents; the message names the line.
    """

    def __init__(
        self, path: str | Path, queries: Sequence[str], documents: Sequence[str], *, name: str | None = None
    ) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        places = {document: place for place, document in enumerate(documents)}
        run = read_run(self.path, queries=set(queries), documents=places)
        self._found = [
            {places[document]: score for document, score in run.get(query, {}).items()} for query in queries
        ]

    def identity(self) -> dict[str, Any]:
        """Return the digest of the file."""
        return {"kind": "run", "sha256": sha256_of(self.path)}

    def prepare(self, queries: Sequence[str], corpus: Sequence[str]) -> None:
        """Do nothing: a run needs no preparation."""

    def score(self, rows: Sequence[int], documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the scores that the run has; -inf for documents that it does not list."""
        return [
            np.array([self._found[row].get(int(place), -np.inf) for place in places], dtype=np.float32)
            for row, places in zip(rows, documents, strict=True)
        ]

    def search(self, rows: Sequence[int], k: int) -> Retrieved:
        """Return the first `k` documents that the run lists for each of some queries."""
        places = np.full((len(rows), k), -1, dtype=np.int64)
        scores = np.full((len(rows), k), -np.inf, dtype=np.float32)
        for line, row in enumerate(rows):
            listed = list(self._found[row].items())[:k]
            places[line, : len(listed)] = [place for place, _ in listed]
            scores[line, : len(listed)] = [score for _, score in listed]
        return Retrieved(places, scores)
