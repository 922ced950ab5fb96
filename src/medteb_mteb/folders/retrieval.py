"""Reads and checks the tables of retrieval and reranking folders."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mar_st.text.values import TsvCell, as_grade, as_id, as_text, is_document, writable
from medteb_mteb.folders.judged import read_judged
from medteb_mteb.folders.layout import QRELS_CONFIGS, alternatives, config_files, config_splits
from medteb_mteb.folders.problems import FolderError, Problems, short_repr
from medteb_mteb.folders.rows import Row, read_rows
from medteb_mteb.measures.judged import Judged

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.folders.layout import Layout

__all__ = ["RetrievalData", "collect_retrieval", "read_retrieval"]

Qrels = dict[str, dict[str, int]]

#: Columns of qrels in data sets made for C-MTEB.
_C_MTEB_COLUMNS = ("q_id", "p_id")


@dataclass(frozen=True)
class RetrievalData:
    """Corpus, queries, qrels and, for reranking, the candidates of one split.

    Attributes:
        corpus: Documents as ``{"id", "title", "text"}``, in file order; the title may be empty.
        queries: Queries of this split as ``{"id", "text"}``, in file order.
        qrels: Query id -> document id -> score; every query has at least one score above 0.
        top_ranked: Query id -> candidate document ids in file order, or None for retrieval.
        judged: Other pairs that were judged.
    """

    corpus: list[dict[str, str]]
    queries: list[dict[str, str]]
    qrels: Qrels
    top_ranked: dict[str, list[str]] | None
    judged: Judged = field(default_factory=Judged)


def read_retrieval(layout: Layout, problems: Problems) -> RetrievalData:
    """Read the tables of a retrieval or reranking folder, and raise on any problem.

    Queries that are judged only in another split's qrels belong to that split and are left out.

    Raises:
        FolderError: With every problem found, each with file and line.
    """
    data = collect_retrieval(layout, problems)
    problems.raise_if_any()
    return data


def collect_retrieval(layout: Layout, problems: Problems) -> RetrievalData:
    """Read as `read_retrieval`, but record problems instead of raising an error."""
    corpus = _texts(read_rows(layout.tables["corpus"], problems), problems, with_title=True)
    queries = _texts(read_rows(layout.tables["queries"], problems), problems, with_title=False)
    qrels, _ = _qrels(layout.tables["qrels"], problems, queries, corpus)
    _compare_alternatives(layout, problems, qrels, queries, corpus)
    elsewhere = _judged_elsewhere(layout)
    for identifier, (row, _) in queries.items():
        if identifier not in qrels:
            if identifier not in elsewhere:
                problems.add(
                    row.file, row.line, "judged", f"query {identifier!r} has no judgement in the qrels"
                )
        elif not any(score > 0 for score in qrels[identifier].values()):
            message = f"query {identifier!r} has no positive document (no qrels score above 0)"
            problems.add(row.file, row.line, "positives", message)
    top_ranked = None
    if "top_ranked" in layout.tables:
        top_ranked = _top_ranked(read_rows(layout.tables["top_ranked"], problems), problems, queries, corpus)
        for identifier in qrels:
            if identifier in queries and identifier not in top_ranked:
                row = queries[identifier][0]
                problems.add(row.file, row.line, "candidates", f"query {identifier!r} has no top_ranked list")
        top_ranked = {identifier: top_ranked[identifier] for identifier in qrels if identifier in top_ranked}
    return RetrievalData(
        corpus=[{"id": key, **values} for key, (_, values) in corpus.items()],
        queries=[{"id": key, "text": values["text"]} for key, (_, values) in queries.items() if key in qrels],
        qrels=qrels,
        top_ranked=top_ranked,
        judged=read_judged(layout.tables.get("judged", []), problems, qrels, queries, corpus),
    )


Texts = dict[str, tuple[Row, dict[str, str]]]


def _texts(rows: list[Row], problems: Problems, *, with_title: bool) -> Texts:
    texts: Texts = {}
    for row in rows:
        key = "_id" if "_id" in row.values else "id"
        if _wrong_columns(row, problems, (key if key in row.values else "_id", "text")):
            continue
        identifier = as_id(row.values[key])
        if identifier is None:
            problems.add(
                row.file, row.line, "id", f"{key} must be non-empty text, got {short_repr(row.values[key])}"
            )
            continue
        if identifier in texts:
            first = texts[identifier][0]
            message = f"duplicate {key} {identifier!r} (first in {problems.name(first.file)}:{first.line})"
            problems.add(row.file, row.line, "duplicate", message)
            continue
        title = row.values.get("title") if with_title else None
        text = row.values["text"]
        if title is not None and not isinstance(title, str):
            problems.add(row.file, row.line, "title", f"title must be text, got {short_repr(title)}")
            continue
        if not is_document(text, title):
            problems.add(row.file, row.line, "text", f"empty or unusable text: {short_repr(text)}")
        texts[identifier] = (
            row,
            {"title": _writable(title), "text": _writable(text)} if with_title else {"text": _writable(text)},
        )
    return texts


def _writable(value: Any) -> str:
    """Return a text as it is; of an unusable one, which is recorded as a problem, what UTF-8 can hold."""
    usable = value == "" or as_text(value) is not None
    return str(value) if usable else writable(str(value or ""))


def _qrels(
    files: list[Path], problems: Problems, queries: Texts, corpus: Texts
) -> tuple[Qrels, dict[tuple[str, str], int]]:
    qrels: Qrels = {}
    lines: dict[tuple[str, str], int] = {}
    for row in read_rows(files, problems):
        of_query, of_document = (
            _C_MTEB_COLUMNS if _C_MTEB_COLUMNS[0] in row.values else ("query-id", "corpus-id")
        )
        if _wrong_columns(row, problems, (of_query, of_document, "score")):
            continue
        query, document = as_id(row.values[of_query]), as_id(row.values[of_document])
        score = as_grade(row.values["score"])
        if query is None or document is None:
            problems.add(row.file, row.line, "id", "query-id and corpus-id must be non-empty text")
            continue
        if query not in queries:
            problems.add(row.file, row.line, "query", f"query-id {query!r} is not in the queries")
        if document not in corpus:
            problems.add(row.file, row.line, "document", f"corpus-id {document!r} is not in the corpus")
        if score is None:
            message = f"score must be a whole number, got {short_repr(row.values['score'])}"
            problems.add(row.file, row.line, "score", message)
            continue
        if (query, document) in lines:
            message = f"({query!r}, {document!r}) is judged twice (first at line {lines[query, document]})"
            problems.add(row.file, row.line, "duplicate", message)
            continue
        lines[query, document] = row.line
        qrels.setdefault(query, {})[document] = score
    return qrels, lines


def _compare_alternatives(
    layout: Layout, problems: Problems, qrels: Qrels, queries: Texts, corpus: Texts
) -> None:
    """Compare two forms of the same qrels, which must agree: an edit of one would be ignored silently."""
    used = layout.tables["qrels"][0]
    for file in alternatives(layout, "qrels"):
        other, lines = _qrels([file], problems, queries, corpus)
        pairs = {
            (query, document): score for query, docs in qrels.items() for document, score in docs.items()
        }
        others = {
            (query, document): score for query, docs in other.items() for document, score in docs.items()
        }
        differing = sorted(
            pair for pair in pairs.keys() | others.keys() if pairs.get(pair) != others.get(pair)
        )
        if differing:
            pair = differing[0]
            message = (
                f"differs from {problems.name(used)} in {len(differing)} judgements, for example "
                f"{pair}: {others.get(pair)} here, {pairs.get(pair)} there. Keep one of the files"
            )
            problems.add(file, lines.get(pair), "differs", message)


def _judged_elsewhere(layout: Layout) -> set[str]:
    """Return the ids of the queries judged in other splits: files in `qrels/`, or as the card declares."""
    used = {*layout.tables["qrels"], *alternatives(layout, "qrels")}
    inside = [path for path in sorted((layout.path / "qrels").glob("*")) if path.is_file()]
    others = [path for path in [*inside, *_declared_elsewhere(layout)] if path not in used]
    unhidden = dict.fromkeys(file for file in others if not file.name.startswith("."))
    rows = read_rows(unhidden, Problems(layout.path))
    query_ids = (as_id(row.values.get("query-id", row.values.get(_C_MTEB_COLUMNS[0]))) for row in rows)
    return {identifier for identifier in query_ids if identifier is not None}


def _declared_elsewhere(layout: Layout) -> list[Path]:
    """Return the qrels of other splits that the card declares and that are there."""
    files: list[Path] = []
    for config in QRELS_CONFIGS:
        splits = config_splits(layout.path, config)
        for split in splits:
            if split != layout.split:
                with contextlib.suppress(FolderError):  # a download of one split lacks the others' files
                    files += config_files(layout.path, config, split)
        if splits:
            break
    return files


def _top_ranked(rows: list[Row], problems: Problems, queries: Texts, corpus: Texts) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for row in rows:
        if _wrong_columns(row, problems, ("query-id", "corpus-ids")):
            continue
        query, documents = as_id(row.values["query-id"]), row.values["corpus-ids"]
        if query is None or query not in queries:
            problems.add(row.file, row.line, "query", f"query-id {query!r} is not in the queries")
            continue
        if query in lists:
            problems.add(row.file, row.line, "duplicate", f"a second list for query {query!r}")
            continue
        ids = [as_id(document) for document in documents] if isinstance(documents, list) else []
        if not ids or None in ids:
            message = f"corpus-ids must be a non-empty list of ids, got {short_repr(documents)}"
            problems.add(row.file, row.line, "list", message)
            continue
        known = [identifier for identifier in ids if identifier is not None]
        for identifier in dict.fromkeys(known):
            if identifier not in corpus:
                message = f"corpus-id {identifier!r} of query {query!r} is not in the corpus"
                problems.add(row.file, row.line, "document", message)
        twice, times = Counter(known).most_common(1)[0]
        if times > 1:
            message = f"corpus-id {twice!r} is listed twice for query {query!r}"
            problems.add(row.file, row.line, "repeated", message)
        lists[query] = known
    return lists


def _wrong_columns(row: Row, problems: Problems, expected: tuple[str, ...]) -> bool:
    missing = [column for column in expected if column not in row.values]
    if missing:
        got = ", ".join(row.values) or "none"
        hint = (
            " (is the header line missing?)"
            if any(isinstance(v, TsvCell) for v in row.values.values())
            else ""
        )
        message = f"columns {', '.join(missing)} are missing; got {got}{hint}"
        problems.add(row.file, row.line, "columns", message)
    return bool(missing)
