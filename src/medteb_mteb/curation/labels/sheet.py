"""Sheets of pairs for clinicians: written without labels, with a private key file, and read back.

The key holds the label of each row, the stratum it was drawn from and the probability of being drawn, so that
shares among all labels can be estimated from shares in the sample.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.files import repeated
from medteb_mteb.curation.files.folder import write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES
from medteb_mteb.folders.rows import MAX_CELL_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text

__all__ = [
    "COLUMNS",
    "Sheet",
    "SheetPair",
    "answered_by_all",
    "guarded",
    "key_of",
    "read_answers",
    "read_rows",
    "read_sheet",
    "write_rows",
    "write_sheet",
]

COLUMNS = ("row", "query", "document", "answer", "comment")
YES_ANSWERS, NO_ANSWERS = ("1", "yes", "y", "是"), ("0", "no", "n", "否")
#: Some spreadsheets take cells that begin with these, after blanks, for formulas (OWASP, "CSV Injection").
FORMULA_PREFIXES = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_CONTROLS = ("\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class SheetPair:
    """A pair of a sheet.

    Attributes:
        row: Row in the sheet, from 1.
        query_id: The query.
        document_id: The document.
        label: 1 for a positive, 0 for a negative, None if the judges disagree.
        stratum: Stratum that it was drawn from.
    """

    row: int
    query_id: str
    document_id: str
    label: int | None
    stratum: str

    @property
    def pair(self) -> tuple[str, str]:
        """Return query and document."""
        return self.query_id, self.document_id


@dataclass(frozen=True)
class Sheet:
    """Rows of a sheet, and what they were drawn from.

    Attributes:
        rows: Pairs by row.
        pairs: Number of pairs of each stratum, drawn or not.
    """

    rows: dict[int, SheetPair]
    pairs: dict[str, int]

    def drawn(self, stratum: str) -> int:
        """Return the number of pairs drawn from a stratum."""
        return sum(row.stratum == stratum for row in self.rows.values())


def key_of(sheet: Path) -> Path:
    """Return the path of the labels of a sheet; reviewers must not see this file."""
    return sheet.with_name(sheet.stem + ".key.json")


def write_sheet(
    path: Path,
    drawn: Sequence[SheetPair],
    pairs: Mapping[str, int],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
    seed: int,
) -> None:
    """Write a sheet with an empty column `answer`, and its key beside it.

    Args:
        path: File to write: `.csv`, or `.jsonl` for tools.
        drawn: The pairs, in the order of the rows.
        pairs: Number of pairs of each stratum.
        queries: Queries by id.
        documents: Documents by id.
        seed: Seed of the draw.

    Raises:
        BuildError: A pair has no text, or the file exists.
    """
    check_free(path)
    sheet = Sheet({one.row: one for one in drawn}, dict(pairs))
    rows, key = [], []
    for one in drawn:
        query, document = _text(queries, one.query_id), _text(documents, one.document_id)
        rows.append(dict(zip(COLUMNS, (one.row, query, document, "", ""), strict=True)))
        key.append(
            {
                "row": one.row,
                "query-id": one.query_id,
                "corpus-id": one.document_id,
                "label": one.label,
                "stratum": one.stratum,
                "probability": sheet.drawn(one.stratum) / pairs[one.stratum],
                "sha256": hashlib.sha256(f"{query}\n{document}".encode()).hexdigest(),
            }
        )
    strata = {name: {"pairs": number, "drawn": sheet.drawn(name)} for name, number in pairs.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"seed": seed, "strata": strata, "rows": key}
    write_text(key_of(path), json.dumps(content, ensure_ascii=False, indent=1))
    write_rows(path, COLUMNS, rows)


def check_free(path: Path) -> None:
    """Refuse a sheet that exists: answers could be lost.

    Raises:
        BuildError: The sheet or its key already exists.
    """
    if path.exists() or key_of(path).exists():
        raise BuildError(f"{path} already exists; give another name, so that no answers are lost.")


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with formulas escaped, or as JSONL, depending on the suffix.

    Raises:
        BuildError: The file cannot be written.
    """
    if path.suffix == ".jsonl":
        lines = [json.dumps({name: row[name] for name in columns}, ensure_ascii=False) for row in rows]
        write_text(path, "\n".join(lines) + "\n")
        return
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow([guarded(name) for name in columns])
    writer.writerows(
        [guarded(cell) if isinstance(cell := row[name], str) else cell for name in columns] for row in rows
    )
    write_text(path, f"\ufeff{table.getvalue()}")  # the mark tells spreadsheets that it is UTF-8


def guarded(cell: str) -> str:
    """Return a text as a CSV cell, with an apostrophe before anything like a formula."""
    return f"'{cell}" if cell.startswith(_CONTROLS) or cell.lstrip().startswith(FORMULA_PREFIXES) else cell


def read_sheet(sheet: Path) -> Sheet:
    """Return the rows of a sheet, from its key.

    Raises:
        BuildError: The key is missing or invalid.
    """
    path = key_of(sheet)
    if not path.is_file():
        raise BuildError(f"There is no {path}, which holds the labels of {sheet.name}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "strata" in content:
            pairs = {str(name): int(entry["pairs"]) for name, entry in content["strata"].items()}
        else:  # a key of an earlier version: positives and negatives
            pairs = {name: int(content["labelled"][name]) for name in ("positive", "negative")}
        drawn = [
            SheetPair(
                entry["row"],
                entry["query-id"],
                entry["corpus-id"],
                entry["label"],
                entry.get("stratum") or ("positive" if entry["label"] else "negative"),
            )
            for entry in content["rows"]
        ]
        if not all(map(_is_pair, drawn)):
            raise TypeError("a row holds values of other types")
        if len({one.row for one in drawn}) < len(drawn):
            raise ValueError("a row occurs twice")
    except (
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError,
    ) as error:  # fmt: skip
        raise BuildError(f"{path} is not the key of a sheet ({error!r}). Export the sheet again.") from None
    if any(one.stratum not in pairs for one in drawn):
        raise BuildError(f"{path} has rows of strata that it does not list. Export the sheet again.")
    return Sheet({one.row: one for one in drawn}, pairs)


def read_answers(file: Path, sheet: Sheet, column: str = "answer") -> dict[int, int]:
    """Return the answers of one reviewer, 1 or 0 by row; unanswered rows are left out.

    An answer is a grade (S and A are positive), or 1 / 0, yes / no, 是 / 否.

    Args:
        file: The returned sheet, CSV or JSONL.
        sheet: The rows of the exported sheet.
        column: Column of the answers.

    Raises:
        BuildError: Rows are missing, duplicated or unknown, or an answer is invalid.
    """
    seen: set[int] = set()
    answers = {}
    for line, row in read_rows(file):
        where = f"{file}:{line}"
        try:
            number = _row_number(row["row"])
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"{where}: expected the columns {', '.join(COLUMNS)}.") from error
        if column not in row:
            raise BuildError(f"{where}: the column {column!r} is missing. Use the sheet as it was written.")
        if number not in sheet.rows or number in seen:
            problem = "occurs twice" if number in seen else "does not belong to this sheet"
            raise BuildError(f"{where}: row {number} {problem}.")
        seen.add(number)
        cell = row[column]
        answer = "" if cell is None else str(cell).strip()
        if answer:
            answers[number] = _positive(answer, where)
    missing = len(sheet.rows) - len(seen)
    if missing and column == "answer":
        raise BuildError(f"{file} lacks {missing} of the {len(sheet.rows)} rows; leave unanswered ones in.")
    return answers


def read_rows(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a sheet with their lines.

    Raises:
        BuildError: The file is neither CSV nor JSONL in UTF-8, or a column occurs twice.
    """
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    try:
        if file.suffix == ".jsonl":
            lines = file.read_text(encoding="utf-8-sig").split("\n")
            parsed = [(n, json.loads(line)) for n, line in enumerate(lines, start=1) if line.strip()]
            if not all(isinstance(row, dict) for _, row in parsed):
                raise ValueError("a line is not an object")
            return parsed
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            # Spreadsheets write columns without a name.
            twice = repeated(column for column in reader.fieldnames or () if column.strip())
            rows = list(enumerate(reader, start=2))
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        kind = "JSONL" if file.suffix == ".jsonl" else "CSV"
        raise BuildError(f"{file} cannot be read as {kind} in UTF-8 ({error}). Save it as that.") from error
    if twice is not None:
        raise BuildError(f"{file}:1: the column {twice!r} occurs twice; keep one of them.")
    return rows


def _is_pair(one: SheetPair) -> bool:
    texts = (one.query_id, one.document_id, one.stratum)
    return (
        type(one.row) is int
        and all(isinstance(text, str) for text in texts)
        and (one.label is None or type(one.label) is int)
    )


def _row_number(cell: Any) -> int:
    if isinstance(cell, bool) or (isinstance(cell, float) and not cell.is_integer()):
        raise TypeError(f"{cell!r} is not the number of a row")
    return int(cell)


def _positive(answer: str, where: str) -> int:
    plain = unicodedata.normalize("NFKC", answer)  # Chinese keyboards write Ａ and １
    if plain.upper() in GRADES:
        return int(plain.upper() in POSITIVE_GRADES)
    if plain.lower() in YES_ANSWERS:
        return 1
    if plain.lower() in NO_ANSWERS:
        return 0
    raise BuildError(f"{where}: {answer!r} is not a valid answer; give one of {', '.join(GRADES)}, 1 or 0.")


def _text(texts: Mapping[str, Text], name: str) -> str:
    if name not in texts:
        raise BuildError(f"The labels name {name!r}, and no text has this id.")
    return texts[name].full


def answered_by_all(rows: Iterable[int], answers: Collection[Container[int]]) -> list[int]:
    """Return the rows that every reviewer has answered.

    Raises:
        BuildError: No row has an answer of every reviewer.
    """
    complete = [row for row in rows if answers and all(row in answered for answered in answers)]
    if not complete:
        raise BuildError("No pair has answers of all reviewers. Fill in more rows of the sheets.")
    return complete
