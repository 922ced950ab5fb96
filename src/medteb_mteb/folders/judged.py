"""Reading the judged pairs of a test: positives, negatives, and pairs that the judges disagree on.

Qrels mostly list positives. Without the negatives, a wrong document cannot be distinguished from one that
nobody judged, and a new retriever is penalised for documents that the old ones did not find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.text.values import as_id, as_number
from medteb_mteb.folders.rows import iter_rows
from medteb_mteb.measures.judged import Judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from medteb_mteb.folders.problems import Problems
    from medteb_mteb.folders.rows import Row

__all__ = ["DISPUTED", "judged_files", "read_judged"]

#: Pairs that the judges do not agree on.
DISPUTED = "disputed.tsv"
#: Files beside the tables that list judged pairs, and the column that says more about a pair.
_COLUMN_BY_FILE = {"judged_negatives.tsv": "", "labels.tsv": "score", "grades.tsv": "grade", DISPUTED: ""}
#: Maximum number of bytes of a header.
_MAX_HEADER_BYTES = 4096

_POSITIVE_LETTERS = ("S", "A")
_LETTERS = (*_POSITIVE_LETTERS, "B", "C", "D")


def judged_files(folder: Path) -> list[Path]:
    """Return the files of a folder that list judged pairs; files with other columns are ignored."""
    return [
        folder / name for name in _COLUMN_BY_FILE if (folder / name).is_file() and _lists_pairs(folder / name)
    ]


def _lists_pairs(file: Path) -> bool:
    with file.open("rb") as stream:
        header = stream.readline(_MAX_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    columns = {"query-id", "corpus-id", _COLUMN_BY_FILE[file.name]} - {""}
    return columns <= set(header.rstrip("\r\n").split("\t"))


def read_judged(
    files: Iterable[Path],
    problems: Problems,
    qrels: Mapping[str, Mapping[str, int]],
    queries: Iterable[str],
    documents: Iterable[str],
) -> Judged:
    """Return the judged negatives and the disputed pairs of a retrieval folder.

    Negatives are the qrels' zeros (as for `trec_eval`, a grade below 0 means in the pool and not judged), the
    pairs of `judged_negatives.tsv`, the zeros of `labels.tsv` and the letters below A of `grades.tsv`.

    Args:
        files: See `judged_files`.
        problems: Receives unusable rows.
        qrels: Relevance by query and document.
        queries: Ids of the queries; those of other splits, which the qrels lack, are ignored.
        documents: Ids of the documents.
    """
    known_queries, known_documents = set(queries), set(documents)
    negatives = {q: {d for d, score in row.items() if score == 0} for q, row in qrels.items()}
    disputed: dict[str, set[str]] = {}
    sources = ["qrels"] if any(negatives.values()) else []
    contradictions = dangling = 0
    for file in files:
        used = False
        for query, document, positive in _pairs(file, problems):
            used = True
            if query not in known_queries or document not in known_documents:
                dangling += 1
            elif query not in qrels:
                continue
            elif file.name == DISPUTED:
                disputed.setdefault(query, set()).add(document)
            elif positive != (qrels.get(query, {}).get(document, 0) > 0):
                contradictions += 1
            elif not positive:
                negatives.setdefault(query, set()).add(document)
        if used:
            sources.append(file.name)
    for query, doc_ids in disputed.items():
        # A pair with a label is decided, even if an older list calls it disputed.
        doc_ids -= negatives.get(query, set()) | {d for d, score in qrels.get(query, {}).items() if score > 0}
    return Judged(
        {query: frozenset(doc_ids) for query, doc_ids in negatives.items() if doc_ids},
        {query: frozenset(doc_ids) for query, doc_ids in disputed.items() if doc_ids},
        tuple(sources),
        contradictions,
        dangling,
    )


def _pairs(file: Path, problems: Problems) -> Iterable[tuple[str, str, bool]]:
    """Yield query, document, and True if the pair is positive."""
    for row in iter_rows(file, problems, may_be_empty=True):
        query, document = as_id(row.values["query-id"]), as_id(row.values["corpus-id"])
        if query is None or document is None:
            problems.add(row.file, row.line, "id", "query-id and corpus-id must be non-empty text")
            continue
        positive = _positive(row, _COLUMN_BY_FILE[file.name], problems)
        if positive is not None:
            yield query, document, positive


def _positive(row: Row, column: str, problems: Problems) -> bool | None:
    if not column:
        return False
    value = row.values[column]
    if column == "grade":
        if value in _LETTERS:
            return value in _POSITIVE_LETTERS
        message = f"the grade {value!r} is not one of {', '.join(_LETTERS)}"
        problems.add(row.file, row.line, "score", message)
        return None
    score = as_number(value)
    if score is None:
        problems.add(row.file, row.line, "score", f"score must be a number, got {value!r}")
        return None
    return score > 0 if score >= 0 else None
