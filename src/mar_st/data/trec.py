"""Runs and judgements (qrels) in TREC's formats, and runs in JSON: query -> document -> score.

A line of a run is `query Q0 document rank score tag`, one of qrels `query iteration document grade`, with
blanks between the fields. Scores order a run, and ranks order equal scores, which `trec_eval` orders by id.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.data.lines import parsed_json, text_lines
from mar_st.data.rows import Row, is_rows, read_rows
from mar_st.errors import MarError
from mar_st.files import regular, write_json, write_text
from mar_st.text.values import TsvCell, as_grade, as_id, as_number

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

__all__ = ["check_run_name", "is_run", "read_qrels", "read_run", "trec_qrels", "write_qrels", "write_run"]

TREC_SUFFIXES = (".trec", ".run")

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def is_run(name: str | Path) -> bool:
    """Return True if a file has the suffix of a run."""
    return Path(name).suffix.lower() in (*TREC_SUFFIXES, ".json")


def check_run_name(path: Path) -> None:
    """Refuse a name whose suffix does not tell the format, before anything is computed."""
    if not is_run(path):
        raise MarError(f"{path}: name a run *.trec or *.run (TREC) or *.json; the suffix decides its format.")


def write_run(path: Path, run: Run, tag: str = "medteb") -> None:
    """Write a run in the format that the suffix names, with scores that are read as the same numbers.

    Args:
        path: File to write.
        run: Scores by query and document.
        tag: Name of the system, at the end of each line of TREC's format.

    Raises:
        MarError: The suffix is unknown; in TREC's format also if an id or the tag is empty or holds blanks.
    """
    check_run_name(path)
    if path.suffix.lower() not in TREC_SUFFIXES:
        write_json(path, run)
        return
    lines: list[tuple[str, ...]] = []
    for query, scores in run.items():
        ranked = sorted(scores.items(), key=lambda entry: -entry[1])
        for rank, (document, score) in enumerate(ranked, 1):
            lines.append((query, "Q0", document, str(rank), repr(float(score)), tag))
    _write_lines(path, lines)


def write_qrels(path: Path, qrels: dict[str, dict[str, int]]) -> None:
    """Write judgements in TREC's format.

    Raises:
        MarError: An id is empty or holds blanks.
    """
    rows = ((query, document, grade) for query, grades in qrels.items() for document, grade in grades.items())
    _write_lines(path, [(query, "0", document, str(grade)) for query, document, grade in rows])


def _write_lines(path: Path, lines: list[tuple[str, ...]]) -> None:
    for word in {word for line in lines for word in line}:
        if word.split() != [word]:
            raise MarError(f"{path}: TREC's format cannot hold the id {word!r}: it is empty or has blanks.")
    write_text(path, "".join(" ".join(line) + "\n" for line in lines))


def read_qrels(
    source: str | Path,
    table: str = "",
    *,
    queries: Container[str] | None = None,
    documents: Container[str] | None = None,
) -> Qrels:
    """Return the grades by query and document.

    Args:
        source: A table with the columns `query-id`, `corpus-id` and `score`, as `read_rows` reads it; or a
            file in TREC's format, with any suffix that is not one of a table.
        table: Name of the table in a folder.
        queries: Known query ids; others are refused. Default: all are accepted.
        documents: Known document ids; others are refused. Default: all are accepted.

    Raises:
        MarError: The file is missing, a row is not a grade, an id is unknown, or a pair has two grades.
    """
    qrels: Qrels = {}

    def add(row: Row) -> None:
        query, document = (as_id(row.values.get(name)) for name in ("query-id", "corpus-id"))
        grade = as_grade(row.values.get("score"))
        if query is None or document is None or grade is None:
            shown = ", ".join(f"{name} {value!r}" for name, value in row.values.items())[:200]
            raise MarError(f"needs 'query-id', 'corpus-id' and 'score', a whole number; has {shown}.")
        for what, name, known in (("query", query, queries), ("document", document, documents)):
            if known is not None and name not in known:
                raise MarError(f"there is no {what} {name!r}.")
        if document in qrels.setdefault(query, {}):
            raise MarError(f"the document {document!r} is judged twice for the query {query!r}.")
        qrels[query][document] = grade

    path = Path(source)
    if path.is_file() and not is_rows(path):
        for row in trec_qrels(path):
            try:
                add(row)
            except MarError as error:
                raise MarError(f"{row.place}: {error}") from error
        return qrels
    for _ in read_rows(source, add, table=table):
        pass
    return qrels


def trec_qrels(path: Path) -> Iterator[Row]:
    """Yield the judgements of a file in TREC's format as rows of a table.

    Raises:
        MarError: A line has other than four fields.
    """
    for number, line in text_lines(path):
        words = [] if isinstance(line, MarError) else line.split()
        if isinstance(line, MarError) or len(words) not in (0, 4):
            raise MarError(f"{path}:{number}: expected query, iteration, document and grade.")
        if words:
            query, _, document, grade = map(TsvCell, words)
            yield Row(f"{path}:{number}", {"query-id": query, "corpus-id": document, "score": grade})


def read_run(
    path: Path,
    *,
    queries: Container[str] | None = None,
    documents: Container[str] | None = None,
    split: str | None = None,
    subset: str = "default",
) -> Run:
    """Return the scores by query and document, each query's documents best first.

    Args:
        path: A run in TREC's format (`.trec`, `.run`) or in JSON: query id -> document id -> score, as
            `mar search` writes it, or mteb's predictions.
        queries: Known query ids; others are refused. Default: all are accepted.
        documents: Known document ids; others are refused. Default: all are accepted.
        split: Split of mteb's predictions; default the only one.
        subset: Subset of mteb's predictions.

    Raises:
        MarError: No such file, not a run, unknown or repeated ids, a score that is not a finite number; the
            message names the line, or in JSON the query.
    """
    check_run_name(path)
    if not path.is_file():
        raise MarError(f"There is no run {path}.")
    run = _trec_run(path) if path.suffix.lower() in TREC_SUFFIXES else _json_run(path, split, subset)
    for query, scores in run.items():
        for kind, known, names in (("query", queries, [query]), ("document", documents, scores)):
            unknown = next((name for name in names if known is not None and name not in known), None)
            if unknown is not None:
                raise MarError(f"{path}, query {query!r}: there is no {kind} {unknown!r} in these data.")
    if not run:
        raise MarError(f"{path} holds no results.")
    return {query: dict(sorted(scores.items(), key=lambda entry: -entry[1])) for query, scores in run.items()}


def _trec_run(path: Path) -> Run:
    ranked: dict[str, dict[str, tuple[int, float]]] = {}
    for number, line in text_lines(path):
        if isinstance(line, MarError):
            raise line
        place, words = f"{path}:{number}", line.split()
        if not words:
            continue
        if len(words) != 6:
            raise MarError(
                f"{place}: expected query, Q0, document, rank, score and tag; got {len(words)} words."
            )
        query, _, document, rank, value, _ = words
        score = as_number(TsvCell(value))
        if score is None or not (rank.isascii() and rank.isdigit() and len(rank) < 19):
            raise MarError(
                f"{place}: expected a rank from 0 and a finite score; got {rank[:40]!r}, {value!r}."
            )
        results = ranked.setdefault(query, {})
        if document in results:
            raise MarError(f"{place}: document {document!r} of query {query!r} again.")
        results[document] = (int(rank), score)
    return {
        query: {
            document: score for document, (_, score) in sorted(results.items(), key=lambda one: one[1][0])
        }
        for query, results in ranked.items()
    }


def _json_run(path: Path, split: str | None, subset: str) -> Run:
    content: Any = parsed_json(str(path), regular(path).read_text(encoding="utf-8-sig", errors="replace"))
    if isinstance(content, MarError):
        raise content
    if isinstance(content, dict) and "mteb_model_meta" in content:
        splits: dict[str, Any] = content.get(subset) or {}
        chosen = next(iter(splits), None) if split is None and len(splits) == 1 else split
        if chosen not in splits:
            raise MarError(
                f"{path}: the subset {subset!r} has the splits {', '.join(splits) or 'none'}; choose one."
            )
        content = splits[chosen]
    if not isinstance(content, dict) or not all(isinstance(results, dict) for results in content.values()):
        raise MarError(f"{path}: expected an object of query to document to score.")
    run: Run = {}
    for query, results in content.items():
        numbers = {document: as_number(value) for document, value in results.items()}
        if None in numbers.values():
            raise MarError(f"{path}, query {query!r}: a score must be a finite number.")
        run[query] = {document: number for document, number in numbers.items() if number is not None}
    return run
