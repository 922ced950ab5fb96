"""Runs: the results of many queries, and their evaluation against qrels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from mar_st.index.errors import IndexingError

if TYPE_CHECKING:
    from mar_st.index.base import Where
    from mar_st.index.searcher import Searcher

#: Queries that are encoded and searched at once.
QUERIES_PER_BATCH = 64

#: Names of the first and of the last column in the header of a file of qrels.
_QUERY_COLUMNS = frozenset({"query-id", "query_id", "query", "q_id", "qid"})
_GRADE_COLUMNS = frozenset({"score", "grade", "relevance", "rel", "label"})

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def read_queries(source: str | Path) -> dict[str, str]:
    """Return the queries by id, of a file or folder like a corpus (`_id` and `text`).

    Raises:
        IndexingError: Ids repeat.
        CorpusError: The file or folder cannot be read.
    """
    from mar_st.encode import read_corpus  # lazy: numpy

    path = Path(source)
    queries: dict[str, str] = {}
    for entry in read_corpus(path / "queries.jsonl" if path.is_dir() else source):
        if entry.id in queries:
            raise IndexingError(f"{source}: the id {entry.id!r} occurs twice; every query needs its own.")
        queries[entry.id] = entry.document
    if not queries:
        raise IndexingError(f"{source} holds no queries.")
    return queries


def read_qrels(path: Path) -> Qrels:
    """Return the grades by query and document of a tab-separated file (`query-id`, `corpus-id`, `score`).

    A first line of column names is skipped. In lines with tabs, ids may hold spaces; other lines are split at
    white space. Lines of TREC's format (`query 0 document grade`) are also read.

    Raises:
        IndexingError: The file is missing, or a line is not a grade or repeats a pair; the message names it.
    """
    from mar_st.files.reading import NotUtf8Error, utf8_lines  # lazy: numpy

    if not path.is_file():
        raise IndexingError(f"There are no qrels {path}. Give a file such as qrels/test.tsv.")
    qrels: Qrels = {}
    try:
        for number, line in utf8_lines(path):
            parts = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
            if not any(parts) or (number == 1 and _is_header(parts)):
                continue
            try:
                query, document, grade = _judgement(parts)
            except ValueError as error:
                raise IndexingError(
                    f"{path}:{number}: expected query, document and a whole-number grade, separated by tabs, "
                    f"or a line of TREC (query 0 document grade); got {line.strip()!r}."
                ) from error
            grades = qrels.setdefault(query, {})
            if document in grades:
                raise IndexingError(f"{path}:{number}: {document!r} is judged twice for query {query!r}.")
            grades[document] = grade
    except NotUtf8Error as error:
        raise IndexingError(str(error)) from error
    return qrels


def _is_header(parts: list[str]) -> bool:
    return parts[0].lower() in _QUERY_COLUMNS and parts[-1].lower() in _GRADE_COLUMNS


def _judgement(parts: list[str]) -> tuple[str, str, int]:
    """Return query, document and grade of a line.

    Raises:
        ValueError: There are too few or too many parts, or the grade is not a whole number.
    """
    if len(parts) == 4:  # TREC
        query, _, document, grade = parts
    else:
        query, document, grade = parts
    if not (query and document):
        raise ValueError("an id is empty")
    return query, document, int(grade)


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
    names = list(queries)
    run: Run = {}
    with tqdm(total=len(names), desc="search", unit="queries", disable=not progress) as bar:
        for start in range(0, len(names), QUERIES_PER_BATCH):
            batch = names[start : start + QUERIES_PER_BATCH]
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
        IndexingError: No query of the run is in the qrels.
    """
    import pytrec_eval  # lazy: pytrec_eval

    judged = {query: grades for query, grades in qrels.items() if any(grade > 0 for grade in grades.values())}
    if not judged.keys() & run.keys():
        raise IndexingError("No query of the run is in the qrels. Check that both belong to the same data.")
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
