"""Grades of judges and the labels made of them, and reading both from files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mar_st.data.rows import Row

#: The published scale, best first: S answers directly and completely, A in part, B same subject with another
#: intent, C a related subject, D unrelated (MAR paper, Table 21).
GRADES = ("S", "A", "B", "C", "D")

#: Grades that make a positive. The papers do not name them; by their definitions S and A answer the query.
POSITIVE_GRADES = ("S", "A")


def value(grade: str) -> int:
    """Return 4 for S down to 0 for D."""
    return len(GRADES) - 1 - GRADES.index(grade)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Grade that one judge gave to one document for one query.

    Attributes:
        query_id: The query.
        document_id: The document.
        judge: The judge.
        grade: Grade by the judge; None if it gave none.
        suspicious: Whether the document looks like an instruction to a judge.
    """

    query_id: str
    document_id: str
    judge: str
    grade: str | None
    suspicious: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        """Return query and document."""
        return self.query_id, self.document_id


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a pair, on which the judges agreed.

    Attributes:
        query_id: The query.
        document_id: The document.
        relevance: 0 for a negative, 1 or more for a positive; `None` if the pair is discarded.
        reason: Why the pair is discarded; otherwise empty.
    """

    query_id: str
    document_id: str
    relevance: int | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a row of `labels.jsonl`."""
        reason = {"reason": self.reason} if self.relevance is None else {}
        return {
            "query-id": self.query_id,
            "corpus-id": self.document_id,
            "relevance": self.relevance,
            **reason,
        }


def read_judgements(path: str | Path) -> Iterator[Judgement]:
    """Yield the judgements of a JSONL file, or of a folder, with the missing ones of its `failed.jsonl`.

    Rows are `{"query-id", "corpus-id", "judge", "grade"}`, with `"suspicious": true` if they are.

    Raises:
        MarError: The file is missing or empty, a row is not a judgement, or a pair has two by one judge.
    """
    seen: set[tuple[str, str, str]] = set()

    def judgement(row: Row) -> Judgement:
        query, document, judge, grade = _strings(row, "query-id", "corpus-id", "judge", "grade")
        if grade not in GRADES:
            raise MarError(f"the grade {grade!r} is not one of {', '.join(GRADES)}.")
        if (query, document, judge) in seen:
            raise MarError(f"{judge} graded {query} and {document} before. Keep one of the grades.")
        seen.add((query, document, judge))
        return Judgement(query, document, judge, grade, row.values.get("suspicious") is True)

    def missing(row: Row) -> Judgement:
        query, document, judge = _strings(row, "query-id", "corpus-id", "judge")
        return Judgement(query, document, judge, None)

    file, failed = _file(path, "judgements.jsonl"), Path(path, "failed.jsonl")
    yield from read_rows(file, judgement)
    if not seen:
        raise MarError(f"{file} holds no judgements.")
    if failed.is_file():
        yield from read_rows(failed, missing)


def read_labels(path: str | Path) -> list[Label]:
    """Return the labels of a JSONL file, or of the `labels.jsonl` of a folder.

    Raises:
        MarError: The file is missing, or a row is not a label.
    """

    def label(row: Row) -> Label:
        query, document = _strings(row, "query-id", "corpus-id")
        relevance = row.values.get("relevance", "nothing")
        if relevance is not None and (type(relevance) is not int or relevance < 0):
            raise MarError(f"relevance must be null or a whole number from 0; got {relevance!r}.")
        return Label(query, document, relevance, str(row.values.get("reason", "")))

    return list(read_rows(_file(path, "labels.jsonl"), label))


def _file(path: str | Path, name: str) -> Path:
    return Path(path, name) if Path(path).is_dir() else Path(path)


def _strings(row: Row, *names: str) -> tuple[str, ...]:
    """Return values of a row that must be texts. They recur in many rows, so each is kept once."""
    values = [row.values.get(name) for name in names]
    if not all(isinstance(one, str) and one for one in values):
        raise MarError(f"expected texts under {', '.join(names)}.")
    return tuple(sys.intern(str(one)) for one in values)


def by_pair(judgements: Iterable[Judgement]) -> tuple[list[str], dict[tuple[str, str], dict[str, str]]]:
    """Return the judges by name, and the given grades by judge for every pair, pairs sorted."""
    grades: dict[tuple[str, str], dict[str, str]] = {}
    judges: set[str] = set()
    for judgement in judgements:
        given = grades.setdefault(judgement.pair, {})
        if judgement.grade is not None:
            given[judgement.judge] = judgement.grade
        judges.add(judgement.judge)
    return sorted(judges), {pair: grades[pair] for pair in sorted(grades)}
