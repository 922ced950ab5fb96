"""Runs: the results of many queries, and their evaluation against qrels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from mar_st.data import ROW_SUFFIXES, read_rows
from mar_st.encode import read_corpus
from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.index.base import Where
    from mar_st.index.searcher import Searcher

#: Queries that are encoded and searched at once.
_QUERIES_PER_BATCH = 64

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def read_queries(source: str | Path) -> dict[str, str]:
    """Return the queries by id, of a file or folder like a corpus (`_id` and `text`).

    Raises:
        MarError: Ids repeat, or the file or folder cannot be read.
    """
    path = Path(source)
    queries: dict[str, str] = {}
    for entry in read_corpus(path / "queries.jsonl" if path.is_dir() else source):
        if entry.id in queries:
            raise MarError(f"{source}: the id {entry.id!r} occurs twice; every query needs its own.")
        queries[entry.id] = entry.document
    if not queries:
        raise MarError(f"{source} holds no queries.")
    return queries


def read_qrels(path: Path) -> Qrels:
    """Return the grades by query and document.

    Args:
        path: A table with the columns `query-id`, `corpus-id` and `score` (`.tsv`, `.jsonl`, ...), or TREC's
            format (`query 0 document grade`) in a file with any other suffix.

    Raises:
        MarError: The file is missing, or a line is not a grade.
    """
    try:
        if path.suffix not in ROW_SUFFIXES:
            import pytrec_eval  # lazy: pytrec_eval

            with path.open(encoding="utf-8") as lines:
                return dict(pytrec_eval.parse_qrel(lines))
        qrels: Qrels = {}
        for row in read_rows(path):
            query, document, grade = (row.values[name] for name in ("query-id", "corpus-id", "score"))
            qrels.setdefault(str(query), {})[str(document)] = int(grade)
        return qrels
    except (OSError, KeyError, ValueError, TypeError, AssertionError) as error:
        raise MarError(
            f"{path}: expected query-id, corpus-id and a whole-number score in each row ({error})."
        ) from error


def search_all(
    searcher: Searcher,
    queries: dict[str, str],
    k: int,
    *,
    where: Where = None,
    hybrid: bool = False,
    rerank: int | None = None,
    progress: bool = True,
) -> Run:
    """Return the best documents of every query, in the form of `pytrec_eval`: query to document to score.

    Args:
        searcher: The searcher.
        queries: Texts by id.
        k: Documents per query.
        where: Filter on the metadata.
        hybrid: Fuse with BM25.
        rerank: Number of documents to rerank.
        progress: Show a progress bar.
    """
    names, run = list(queries), Run()
    with tqdm(total=len(names), desc="search", unit="queries", disable=not progress) as bar:
        for start in range(0, len(names), _QUERIES_PER_BATCH):
            batch = names[start : start + _QUERIES_PER_BATCH]
            texts = [queries[name] for name in batch]
            results = searcher.run(texts, k, where=where, hybrid=hybrid, rerank=rerank)
            run |= dict(zip(batch, results, strict=True))
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
