"""Runs: the results of many queries, and their evaluation against qrels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tqdm import tqdm

from mar_st.data.texts import texts_by_id
from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.data.trec import Qrels, Run
    from mar_st.index.base import Where
    from mar_st.index.searcher import Searcher

#: Queries that are encoded and searched at once.
_QUERIES_PER_BATCH = 64


def read_queries(source: str | Path) -> dict[str, str]:
    """Return the queries by id, of a file or folder like a corpus (`_id` and `text`).

    Raises:
        MarError: Ids repeat, or the file or folder cannot be read.
    """
    queries = texts_by_id(source, "queries")
    if not queries:
        raise MarError(f"{source} holds no queries.")
    return queries


def search_all(
    searcher: Searcher,
    queries: dict[str, str],
    k: int,
    *,
    where: Where = None,
    hybrid: bool = False,
    progress: bool = True,
) -> Run:
    """Return the best documents of every query, in the form of `pytrec_eval`: query to document to score.

    Args:
        searcher: The searcher.
        queries: Texts by id.
        k: Documents per query.
        where: Filter on the metadata.
        hybrid: Fuse with BM25.
        progress: Show a progress bar.
    """
    names, run = list(queries), dict[str, dict[str, float]]()
    with tqdm(total=len(names), desc="search", unit="queries", disable=not progress) as bar:
        for start in range(0, len(names), _QUERIES_PER_BATCH):
            batch = names[start : start + _QUERIES_PER_BATCH]
            texts = [queries[name] for name in batch]
            results = searcher.search(texts, k, where=where, hybrid=hybrid)
            hits = ({hit.id: hit.score for hit in one} for one in results)
            run |= dict(zip(batch, hits, strict=True))
            bar.update(len(batch))
    return run


def evaluate(run: Run, qrels: Qrels, k: int) -> dict[str, float]:
    """Return mean nDCG@10, recall and reciprocal rank over the queries that have relevant documents.

    Args:
        run: Scores by query and document.
        qrels: Grades by query and document.
        k: Depth of the run.

    Raises:
        MarError: No query of the run is in the qrels.
    """
    import pytrec_eval  # lazy: pytrec_eval

    judged = {query: grades for query, grades in qrels.items() if any(grade > 0 for grade in grades.values())}
    if not judged.keys() & run.keys():
        raise MarError("No query of the run is in the qrels. Check that both belong to the same data.")
    names = {
        "ndcg@10": "ndcg_cut_10",
        "recall@10": "recall_10",
        f"recall@{k}": f"recall_{k}",
        "mrr": "recip_rank",
    }
    measured = pytrec_eval.RelevanceEvaluator(
        judged, {"ndcg_cut.10", f"recall.10,{k}", "recip_rank"}
    ).evaluate(run)
    means = {
        shown: math.fsum(scores[name] for scores in measured.values()) / len(judged)
        for shown, name in names.items()
    }
    return {**means, "queries": len(judged)}
