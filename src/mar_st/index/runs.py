"""Runs: the results of many queries, and their evaluation against qrels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.index.base import Where
    from mar_st.index.searcher import Searcher

#: Queries that are encoded and searched at once.
_QUERIES_PER_BATCH = 64

#: Names of the last column in the header of a file of qrels.
_GRADE_COLUMNS = frozenset({"score", "grade", "relevance", "rel", "label"})

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def read_queries(source: str | Path) -> dict[str, str]:
    """Return the queries by id, of a file or folder like a corpus (`_id` and `text`).

    Raises:
        MarError: Ids repeat, or the file or folder cannot be read.
    """
    from mar_st.encode import read_corpus  # lazy: datasets

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
    """Return the grades by query and document of a tab-separated file (`query-id`, `corpus-id`, `score`).

    A first line of column names is skipped. Lines of TREC's format (`query 0 document grade`) are also read.

    Raises:
        MarError: The file is missing, or a line is not a grade or repeats a pair; the message names it.
    """
    qrels: Qrels = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MarError(f"{path} cannot be read ({error}). Give a file such as qrels/test.tsv.") from error
    for number, line in enumerate(lines, 1):
        parts = [part.strip() for part in (line.split("\t") if "\t" in line else line.split())]
        if not any(parts) or (number == 1 and parts[-1].lower() in _GRADE_COLUMNS):
            continue
        try:
            query, document, grade = (parts[0], *parts[2:]) if len(parts) == 4 else parts
            grades = qrels.setdefault(query, {})
            if not query or not document or document in grades:
                raise ValueError("an id is missing, or a pair is judged twice")
            grades[document] = int(grade)
        except ValueError as error:
            raise MarError(
                f"{path}:{number}: expected query, document and a whole-number grade, separated by tabs, or "
                f"a line of TREC (query 0 document grade); got {line.strip()!r} ({error})."
            ) from error
    return qrels


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
    cuts = sorted({10, k})
    measures = {"ndcg_cut.10", "recall." + ",".join(map(str, cuts)), "recip_rank"}
    measured = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(run)
    names = {
        "ndcg_cut_10": "ndcg@10",
        **{f"recall_{cut}": f"recall@{cut}" for cut in cuts},
        "recip_rank": "mrr",
    }
    return {
        shown: math.fsum(scores[name] for scores in measured.values()) / len(judged)
        for name, shown in names.items()
    } | {"queries": float(len(judged))}
