"""Grades of judges, and reading them from a folder."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "GRADES",
    "POSITIVE_GRADES",
    "Judgement",
    "Judging",
    "Label",
    "by_pair",
    "read_judgements",
    "read_judging",
    "read_labels",
    "value",
]

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
        grade: Grade by the judge.
        suspicious: Whether the document looks like an instruction to a judge.
    """

    query_id: str
    document_id: str
    judge: str
    grade: str
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
        row: dict[str, Any] = {"query-id": self.query_id, "corpus-id": self.document_id}
        if self.relevance is None:
            return {**row, "relevance": None, "reason": self.reason}
        return {**row, "relevance": self.relevance}


@dataclass(frozen=True)
class Judging:
    """Grades of a finished judging.

    Attributes:
        judgements: The grades.
        judges: All judges of the judging, including those without a grade; sorted.
        failed: Query, document and judge of the missing grades.
    """

    judgements: tuple[Judgement, ...]
    judges: tuple[str, ...]
    failed: tuple[tuple[str, str, str], ...] = ()


def read_judging(path: str | Path) -> Judging:
    """Return judgements and all judges that were asked.

    Args:
        path: Folder of `medteb judge`, or a JSONL file of judgements, whose judges are those that occur.

    Raises:
        BuildError: See `read_judgements`; or a judge gave no grade at all.
    """
    judgements = tuple(read_judgements(path))
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    occur = {one.judge for one in judgements}
    manifest, failed = folder / "manifest.json", folder / "failed.jsonl"
    if not manifest.is_file() or (Path(path).is_file() and Path(path).name != "judgements.jsonl"):
        return Judging(judgements, tuple(sorted(occur)))
    judges = read_json(manifest).get("judges")
    if not isinstance(judges, dict):
        return Judging(judgements, tuple(sorted(occur)))
    missing = tuple(
        _missing(line, f"{failed}:{number}")
        for number, line in enumerate(_text(failed).split("\n"), start=1)
        if line
    )
    return Judging(judgements, tuple(sorted({*judges, *occur})), missing)


def _missing(line: str, where: str) -> tuple[str, str, str]:
    try:
        row: Mapping[str, Any] = json.loads(line)
        return row["query-id"], row["corpus-id"], row["judge"]
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{where}: expected an object with query-id, corpus-id and judge.") from error


def read_judgements(path: str | Path) -> Iterator[Judgement]:
    """Yield the judgements of a JSONL file, or of the `judgements.jsonl` of a folder.

    Rows are `{"query-id", "corpus-id", "judge", "grade"}`, with `"suspicious": true` if they are.

    Raises:
        BuildError: The file is missing, or a row is not a judgement; its line is named.
    """
    file = Path(path) / "judgements.jsonl" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise BuildError(f"There is no {file}. Give a JSONL file of judgements, or the folder of a judging.")
    seen: dict[tuple[str, str, str], int] = {}
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                judgement = _judgement(line, f"{file}:{number}")
                key = (*judgement.pair, judgement.judge)
                if key in seen:
                    raise BuildError(
                        f"{file}:{number}: {judgement.judge} graded {judgement.query_id} and "
                        f"{judgement.document_id} in line {seen[key]} already. Keep one of them."
                    )
                seen[key] = number
                yield judgement
    except UnicodeDecodeError as error:
        raise BuildError(f"{file} is not UTF-8: {error}. Convert it to UTF-8.") from error
    if not seen:
        raise BuildError(f"{file} holds no judgements.")


def _judgement(line: str, where: str) -> Judgement:
    try:
        row: Mapping[str, Any] = json.loads(line)
        parts = [row[name] for name in ("query-id", "corpus-id", "judge", "grade")]
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(
            f"{where}: expected an object with query-id, corpus-id, judge and grade ({error!r})."
        ) from error
    if not all(isinstance(part, str) and part for part in parts):
        raise BuildError(f"{where}: query-id, corpus-id, judge and grade must be strings.")
    if parts[3] not in GRADES:
        raise BuildError(f"{where}: the grade {parts[3]!r} is not one of {', '.join(GRADES)}.")
    # Names recur in many rows; each is kept once.
    query, document, judge, grade = map(sys.intern, parts)
    return Judgement(query, document, judge, grade, row.get("suspicious") is True)


def read_labels(path: str | Path) -> list[Label]:
    """Return the labels of a `labels.jsonl`, or of the folder of one.

    Raises:
        BuildError: The file is missing, or a row is not a label.
    """
    file = Path(path) / "labels.jsonl" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise BuildError(f"There is no {file}; 'medteb consensus' writes it.")
    labels = []
    lines = _text(file).removesuffix("\n").split("\n")  # reasons may hold U+2028
    for number, line in enumerate(lines, start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            labels.append(Label(row["query-id"], row["corpus-id"], row["relevance"], row.get("reason", "")))
        except (ValueError, KeyError, TypeError) as error:
            raise BuildError(f"{file}:{number}: expected query-id, corpus-id and relevance.") from error
        relevance = labels[-1].relevance
        if relevance is not None and (type(relevance) is not int or relevance < 0):
            raise BuildError(
                f"{file}:{number}: relevance must be null or a whole number from 0; got {relevance!r}."
            )
    return labels


def _text(file: Path) -> str:
    """Return a text file's content.

    Raises:
        BuildError: The file cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BuildError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise BuildError(f"{file} is not UTF-8: {error}. Convert it to UTF-8.") from error


def by_pair(judgements: Iterable[Judgement]) -> tuple[list[str], dict[tuple[str, str], dict[str, str]]]:
    """Return the judges by name, and the grade of every judge for every pair, pairs sorted."""
    grades: dict[tuple[str, str], dict[str, str]] = {}
    judges: set[str] = set()
    for judgement in judgements:
        grades.setdefault(judgement.pair, {})[judgement.judge] = judgement.grade
        judges.add(judgement.judge)
    return sorted(judges), {pair: grades[pair] for pair in sorted(grades)}


def check_grades(grades: Sequence[str]) -> None:
    """Refuse letters that are not grades.

    Raises:
        BuildError: An item is not a grade.
    """
    unknown = [grade for grade in grades if grade not in GRADES]
    if unknown or not grades:
        raise BuildError(
            f"Positive grades are some of {', '.join(GRADES)}; got {', '.join(grades) or 'none'}."
        )
