"""Runs and judgements (qrels) in TREC's formats, and the runs of this project in JSON.

A line of a run is `query Q0 document rank score tag`, one of qrels `query iteration document grade`, with
blanks between the fields. As for `trec_eval`, scores order a run; ranks order equal scores and must not
contradict the others.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import write_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

__all__ = ["RunError", "check_run_name", "is_run", "lines_of", "read_run", "write_qrels", "write_run"]

#: Suffixes of runs in TREC's format.
TREC_SUFFIXES = (".trec", ".run")

#: Suffixes of runs in JSON.
JSON_SUFFIXES = (".json", ".jsonl")

#: A rank with this many digits or more is refused; Python converts only some thousand digits.
_TOO_MANY_DIGITS = 19

Run = dict[str, dict[str, float]]


class RunError(MarError):
    """A run or qrels cannot be read or written; the message names file and line."""


def is_run(name: str | Path) -> bool:
    """Return True if a file has the suffix of a run."""
    return Path(name).suffix.lower() in (*TREC_SUFFIXES, *JSON_SUFFIXES)


def check_run_name(path: Path) -> None:
    """Refuse a name whose suffix does not tell the format, before anything is computed.

    Raises:
        RunError: The suffix is unknown.
    """
    if not is_run(path):
        raise RunError(f"{path}: name a run *.trec or *.run (TREC) or *.json; the suffix decides its format.")


def write_run(path: Path, run: Run, tag: str = "medteb") -> None:
    """Write a run in the format that the suffix names; the file appears only when it is complete.

    Scores are written so that reading gives the same numbers.

    Args:
        path: File to write; `.trec` and `.run` are TREC's format, `.json` and `.jsonl` one JSON object.
        run: Scores by query and document.
        tag: Name of the system, at the end of each line of TREC's format.

    Raises:
        RunError: The suffix is unknown; in TREC's format also if an id or the tag is empty or holds blanks.
    """
    check_run_name(path)
    if path.suffix.lower() in JSON_SUFFIXES:
        write_text(path, json.dumps(run, ensure_ascii=False, indent=2) + "\n")
        return
    _check_words(path, tag)
    lines = []
    for query, scores in run.items():
        ranked = sorted(scores.items(), key=lambda entry: -entry[1])
        for rank, (document, score) in enumerate(ranked, 1):
            _check_words(path, query, document)
            lines.append(f"{query} Q0 {document} {rank} {float(score)!r} {tag}\n")
    write_text(path, "".join(lines))


def write_qrels(path: Path, qrels: dict[str, dict[str, int]]) -> None:
    """Write judgements in TREC's format; the file appears only when it is complete.

    Raises:
        RunError: An id is empty or holds blanks.
    """
    lines = []
    for query, grades in qrels.items():
        for document, grade in grades.items():
            _check_words(path, query, document)
            lines.append(f"{query} 0 {document} {grade}\n")
    write_text(path, "".join(lines))


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
        RunError: No such file, not a run, unknown or repeated ids, a score that is not a finite number, ranks
            that repeat or contradict the scores; the message names the line, or in JSON the query.
    """
    check_run_name(path)
    if not path.is_file():
        raise RunError(f"There is no run {path}.")
    known = (queries, documents)
    is_json = path.suffix.lower() in JSON_SUFFIXES
    run = _read_json(path, known, split, subset) if is_json else _read_trec(path, known)
    if not run:
        raise RunError(f"{path} holds no results.")
    return run


def _read_trec(path: Path, known: tuple[Container[str] | None, Container[str] | None]) -> Run:
    by_query: dict[str, dict[str, tuple[float, int, int]]] = {}
    ranks: dict[str, dict[int, int]] = {}
    for number, words in lines_of(path, 6, "query Q0 document rank score tag"):
        query, _, document, rank_text, score_text, _ = words
        where = f"{path}:{number}"
        _check_known(where, query, document, known)
        if not (rank_text.isascii() and rank_text.isdigit() and len(rank_text) < _TOO_MANY_DIGITS):
            raise RunError(f"{where}: the rank must be a whole number from 0, got {rank_text[:40]!r}.")
        score, rank = _score(where, score_text), int(rank_text)
        results, taken = by_query.setdefault(query, {}), ranks.setdefault(query, {})
        if document in results:
            first = results[document][2]
            raise RunError(
                f"{where}: document {document!r} of query {query!r} again (first in line {first})."
            )
        if rank in taken:
            raise RunError(f"{where}: rank {rank} of query {query!r} again (first in line {taken[rank]}).")
        results[document], taken[rank] = (score, rank, number), number
    return {query: _ordered(path, query, results) for query, results in by_query.items()}


def _ordered(path: Path, query: str, results: dict[str, tuple[float, int, int]]) -> dict[str, float]:
    """Return the documents of a query by rank; refuses scores that rise with it."""
    before = math.inf
    ordered = {}
    for document, (score, rank, number) in sorted(results.items(), key=lambda entry: entry[1][1]):
        if score > before:
            raise RunError(
                f"{path}:{number}: rank {rank} of query {query!r} has the score {score!r}, above {before!r} "
                "of the rank before it. Runs are ordered by score, highest first; turn the sign of distances."
            )
        ordered[document] = before = score
    return ordered


def _read_json(
    path: Path, known: tuple[Container[str] | None, Container[str] | None], split: str | None, subset: str
) -> Run:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_once)
        if "\\u" in text:  # half of a surrogate pair cannot be written to a file
            json.dumps(content, ensure_ascii=False).encode()
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and "mteb_model_meta" in content:
        content = _predictions(path, content, split, subset)
    if not isinstance(content, dict) or not all(isinstance(results, dict) for results in content.values()):
        raise RunError(f"{path}: expected an object of query to document to score.")
    run: Run = {}
    for query, results in content.items():
        where = f"{path}, query {query!r}"
        scores = {}
        for document, score in results.items():
            _check_known(where, query, document, known)
            scores[document] = _score(where, score)
        run[query] = dict(sorted(scores.items(), key=lambda entry: -entry[1]))
    return run


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys do not repeat; JSON readers would keep the last of equal ones."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"{next(name for name in names if names.count(name) > 1)!r} occurs twice in one object"
        )
    return content


def _predictions(path: Path, content: dict[str, Any], split: str | None, subset: str) -> Any:
    """Return the run in a file of mteb's predictions."""
    splits = content.get(subset)
    if not isinstance(splits, dict):
        names = ", ".join(sorted(set(content) - {"mteb_model_meta"}))
        raise RunError(f"{path} has no subset {subset!r}; it has {names or 'none'}.")
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    if split not in splits:
        raise RunError(f"{path} has the splits {', '.join(splits)}; choose one of them.")
    return splits[split]


def lines_of(path: Path, columns: int, form: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and words of every line that is not blank.

    Raises:
        RunError: A line has another number of words, or is not UTF-8.
    """
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                words = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8").split()
            except UnicodeDecodeError:
                raise RunError(f"{path}:{number}: not valid UTF-8.") from None
            if words and len(words) != columns:
                raise RunError(f"{path}:{number}: expected {columns} columns ({form}), got {len(words)}.")
            if words:
                yield number, words


def _check_known(
    where: str, query: str, document: str, known: tuple[Container[str] | None, Container[str] | None]
) -> None:
    for kind, name, allowed in (("query", query, known[0]), ("document", document, known[1])):
        if allowed is not None and name not in allowed:
            raise RunError(f"{where}: there is no {kind} {name!r} in the data that the run is used with.")


def _score(where: str, value: Any) -> float:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise RunError(f"{where}: the score must be a finite number, got {value!r}.")
    return score


def _check_words(path: Path, *words: str) -> None:
    for word in words:
        if len(word.split()) != 1 or word != word.strip():
            raise RunError(f"{path}: TREC's format cannot hold the id {word!r}: it is empty or has blanks.")
