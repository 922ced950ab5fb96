"""Files of a task folder in the Hub layout: corpus, queries, qrels, candidates, and pairs of STS.

The values pass the same checks as those of `medteb run`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files.reading import NotUtf8Error, one_line, repeated, utf8_lines
from mar_st.text.texts import join_document
from mar_st.text.values import TsvCell, as_grade, as_id, as_number, as_text, is_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def read_retrieval(folder: Path, split: str, *, rerank: bool) -> dict[str, Any]:
    """Read a retrieval or reranking task.

    Args:
        folder: Folder with `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv` (or `.jsonl`) and, for
            reranking, `top_ranked.jsonl`.
        split: The split.
        rerank: Whether to read the candidates, to which the corpus is then cut.

    Returns:
        `queries`, `corpus`, `qrels` and `candidates`, see `mar_st.evaluation.tasks.TaskData`. Queries without
        a relevant document are left out.

    Raises:
        MarError: A file is missing or broken; the message names file and line.
    """
    corpus = _texts(folder / "corpus.jsonl", titles=True)
    all_queries = _texts(folder / "queries.jsonl", titles=False)
    qrels: dict[str, dict[str, int]] = {}
    judged: set[tuple[str, str]] = set()
    for place, query, document, grade in _qrels(folder, split):
        for what, key, known in (("query", query, all_queries), ("document", document, corpus)):
            if key not in known:
                raise MarError(f"{place}: there is no {what} {key!r}.")
        if (query, document) in judged:
            raise MarError(f"{place}: the document {document!r} is judged twice for the query {query!r}.")
        judged.add((query, document))
        if grade > 0:
            qrels.setdefault(query, {})[document] = grade
    if not qrels:
        raise MarError(f"{folder}: the qrels mark no document as relevant.")
    # Queries without a positive cannot be scored; mteb leaves them out as well.
    queries = {key: all_queries[key] for key in qrels}
    candidates: dict[str, list[str]] = {}
    if rerank:
        path = folder / "top_ranked.jsonl"
        candidates = _candidates(path, all_queries, corpus)
        missing = [key for key in queries if key not in candidates]
        if missing:
            raise MarError(f"{path}: the query {missing[0]!r} has no candidates.")
        candidates = {key: candidates[key] for key in queries}
        used = {document for listed in candidates.values() for document in listed}
        corpus = {key: text for key, text in corpus.items() if key in used}
    return {"queries": queries, "corpus": corpus, "qrels": qrels, "candidates": candidates}


def read_pairs(folder: Path, split: str) -> dict[str, Any]:
    """Read the pairs of an STS task from `SPLIT.jsonl`.

    Returns:
        `pairs` and `gold`, see `mar_st.evaluation.tasks.TaskData`.

    Raises:
        MarError: The file is missing or broken, it is one of pair classification, or all pairs have one
            score.
    """
    pairs, gold = [], []
    for place, row in _rows(folder / f"{split}.jsonl"):
        if "label" in row and "score" not in row:
            raise MarError(
                f"{place}: 'label' is a column of pair classification; only retrieval, reranking and STS can "
                "be scored here. For STS, name the column 'score'."
            )
        first, second = as_text(row.get("sentence1")), as_text(row.get("sentence2"))
        value = as_number(row.get("score"))
        if first is None or second is None or value is None:
            raise MarError(f"{place}: needs 'sentence1', 'sentence2' and a finite number 'score'.")
        pairs.append((first, second))
        gold.append(value)
    if len(set(gold)) < 2:
        raise MarError(f"{folder}: all {len(gold)} pairs have one score; a correlation needs at least two.")
    return {"pairs": pairs, "gold": gold}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not empty, each with its number."""
    if not path.is_file():
        raise MarError(f"{path} is missing.")
    try:
        yield from ((number, line) for number, line in utf8_lines(path) if line.strip())
    except NotUtf8Error as error:
        raise MarError(str(error)) from error


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file, each with its place."""
    for number, line in _lines(path):
        try:
            row = json.loads(line)
            if "\\u" in line:
                json.dumps(row, ensure_ascii=False).encode()  # fails on half of a surrogate pair
        except (ValueError, RecursionError) as error:
            raise MarError(f"{path}:{number}: not a JSON object ({one_line(error)}).") from error
        if not isinstance(row, dict):
            raise MarError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
        yield f"{path}:{number}", row


def _texts(path: Path, *, titles: bool) -> dict[str, str]:
    """Return the texts by id; with the titles of a corpus, which queries do not have."""
    texts: dict[str, str] = {}
    for place, row in _rows(path):
        name = "_id" if "_id" in row else "id"
        if name not in row or "text" not in row:
            raise MarError(f"{place}: needs '_id' and 'text'; has {sorted(row)}.")
        key, text, title = as_id(row[name]), row["text"], (row.get("title") or "") if titles else ""
        if key is None:
            raise MarError(f"{place}: {name!r} is a string that is not empty; got {row[name]!r}.")
        if not isinstance(text, str) or not isinstance(title, str):
            raise MarError(f"{place}: 'text' and 'title' are strings.")
        if not is_document(text, title):
            raise MarError(f"{place}: the text of {key!r} is empty.")
        if key in texts:
            raise MarError(f"{place}: the id {key!r} occurs twice.")
        texts[key] = join_document({"title": title, "text": text})
    return texts


def _qrels(folder: Path, split: str) -> Iterator[tuple[str, str, str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file() and path.with_suffix(".jsonl").is_file():
        for place, row in _rows(path.with_suffix(".jsonl")):
            query, document = as_id(row.get("query-id")), as_id(row.get("corpus-id"))
            grade = as_grade(row.get("score"))
            if query is None or document is None or grade is None:
                raise MarError(f"{place}: needs 'query-id', 'corpus-id' and 'score', a whole number.")
            yield place, query, document, grade
        return
    for number, line in _lines(path):
        cells = line.split("\t")
        if number == 1 and cells[0] == "query-id":
            continue
        score = as_grade(TsvCell(cells[2])) if len(cells) == 3 else None
        if score is None:
            raise MarError(
                f"{path}:{number}: needs query-id, corpus-id and score, a whole number; has {line!r}."
            )
        yield f"{path}:{number}", cells[0], cells[1], score


def _candidates(path: Path, queries: Mapping[str, str], corpus: Mapping[str, str]) -> dict[str, list[str]]:
    candidates: dict[str, list[str]] = {}
    for place, row in _rows(path):
        query, ids = as_id(row.get("query-id")), row.get("corpus-ids", [])
        if not isinstance(ids, list):
            raise MarError(f"{place}: 'corpus-ids' is a list; got {type(ids).__name__}.")
        if query is None or query not in queries:
            raise MarError(f"{place}: there is no query {row.get('query-id')!r}.")
        if query in candidates:
            raise MarError(f"{place}: a second list for the query {query!r}.")
        if not ids:
            raise MarError(f"{place}: no candidates.")
        listed = [as_id(one) or "" for one in ids]
        for given, key in zip(ids, listed, strict=True):
            if key not in corpus:
                raise MarError(f"{place}: there is no document {given!r}.")
        twice = repeated(listed)
        if twice is not None:
            raise MarError(f"{place}: the document {twice!r} is listed twice.")
        candidates[query] = listed
    return candidates
