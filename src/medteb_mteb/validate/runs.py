"""Runs to validate with: files, or a lexical baseline that is run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.folders import RetrievalData

__all__ = ["BASELINE", "BASELINES", "DEPTH", "read_runs"]

BASELINES = ("bm25-char-bigram", "bm25-jieba")
BASELINE = BASELINES[0]
#: Number of documents that a baseline retrieves, as in mteb's runs.
DEPTH = 1000

Run = dict[str, dict[str, float]]


def read_runs(names: Sequence[str], data: RetrievalData) -> dict[str, Run]:
    """Return the scores by run, query and document.

    Args:
        names: Files (TREC, JSON or mteb's predictions), or names of `BASELINES`.
        data: The queries and documents.

    Raises:
        BuildError: Two runs have the same name.
        MarError: A file is not a run, or belongs to other queries or documents.
    """
    from mar_st.data.trec import read_run  # lazy: transformers

    queries, documents = {row["id"] for row in data.queries}, {row["id"] for row in data.corpus}
    runs: dict[str, Run] = {}
    for name in names:
        label = name if name in BASELINES else Path(name).stem
        if label in runs:
            raise BuildError(f"Two of the runs are called {label!r}; rename a file.")
        runs[label] = (
            _searched(name, data)
            if name in BASELINES
            else read_run(Path(name), queries=queries, documents=documents)
        )
    return runs


def _searched(name: str, data: RetrievalData) -> Run:
    from datasets import Dataset  # lazy: datasets

    from medteb_mteb.models.bm25 import BM25Model  # lazy: mteb

    model = BM25Model(name.removeprefix("bm25-"))
    model.index(Dataset.from_list(data.corpus))
    queries: Any = Dataset.from_list(data.queries)
    results = model.search(queries, top_k=DEPTH, top_ranked=data.top_ranked)
    return {query: dict(documents) for query, documents in results.items()}
