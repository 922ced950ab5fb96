"""Sheets of pairs for clinicians: drawn in strata, written without labels, and read back.

Strata are positives and negatives. Each gets a minimum, and the rest of the budget is shared
by the square root of the sizes (power allocation, M. Bankier, The American Statistician 42, 1988), so the
negatives, which are nearly all of the pairs, do not use up the budget. The key beside the sheet holds the
label of each row, so that shares among all labels can be estimated from shares in the sample.
"""

from __future__ import annotations

import csv
import io
import math
import random
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import write_json, write_text
from medteb_mteb.curation.files.layout import guarded
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mar_st.data.rows import Row
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.labels.grades import Label

COLUMNS = ("row", "query", "document", "answer", "comment")
#: Names of the strata, by label.
STRATA = ("negative", "positive")
YES_ANSWERS, NO_ANSWERS = ("1", "yes", "y", "是"), ("0", "no", "n", "否")


class SheetPair(NamedTuple):
    """A pair of a sheet.

    Attributes:
        query_id: The query.
        document_id: The document.
        label: 1 for a positive, 0 for a negative.
    """

    query_id: str
    document_id: str
    label: int


class Sheet(NamedTuple):
    """Pairs of a sheet by row, from 1, and the number of pairs of each stratum, drawn or not."""

    rows: dict[int, SheetPair]
    pairs: dict[str, int]


def strata_of(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Return the labels by stratum, without those of discarded pairs."""
    strata: dict[str, list[Label]] = {}
    for label in labels:
        if label.relevance is not None:
            strata.setdefault(STRATA[label.relevance > 0], []).append(label)
    return {name: strata[name] for name in sorted(strata)}


def allocate(sizes: Mapping[str, int], budget: int, minimum: int) -> dict[str, int]:
    """Return the number of pairs to draw from each stratum.

    Args:
        sizes: Number of pairs of each stratum.
        budget: Number of pairs to draw in total; if there are fewer, all are drawn.
        minimum: Minimum number of pairs of each stratum; smaller strata are drawn completely.

    Raises:
        MarError: The budget is below the minimum of all strata.
    """
    numbers = {name: min(size, minimum) for name, size in sizes.items()}
    if sum(numbers.values()) > budget:
        raise MarError(
            f"{len(sizes)} strata with at least {minimum} pairs each take {sum(numbers.values())} pairs, and "
            f"the size is {budget}. Raise --size."
        )
    for _ in range(min(budget, sum(sizes.values())) - sum(numbers.values())):  # Webster's method
        left = (name for name, size in sizes.items() if numbers[name] < size)
        numbers[max(left, key=lambda name: math.sqrt(sizes[name]) / (numbers[name] + 0.5))] += 1
    return numbers


def draw(strata: Mapping[str, Sequence[Label]], numbers: Mapping[str, int], seed: int) -> Sheet:
    """Draw labels without replacement from each stratum, and shuffle them.

    Strata are drawn one by one, so a larger number elsewhere changes no other sample, and a larger sample
    of a stratum contains a smaller one.
    """
    drawn = []
    for name, labels in strata.items():
        ordered = sorted(labels, key=lambda label: (label.query_id, label.document_id))
        random.Random(f"{seed}\0{name}").shuffle(ordered)
        chosen = ordered[: numbers[name]]
        drawn += [SheetPair(one.query_id, one.document_id, STRATA.index(name)) for one in chosen]
    random.Random(seed).shuffle(drawn)
    rows = dict(enumerate(drawn, start=1))
    return Sheet(rows, {name: len(labels) for name, labels in strata.items()})


def write_sheet(path: Path, sheet: Sheet, queries: Mapping[str, Text], documents: Mapping[str, Text]) -> None:
    """Write a sheet as CSV with an empty column `answer`, and its labels to `*.key.json` beside it.

    Raises:
        MarError: A pair has no text.
    """
    rows = [
        (row, _text(queries, one.query_id), _text(documents, one.document_id), "", "")
        for row, one in sheet.rows.items()
    ]
    key = {"pairs": sheet.pairs, "rows": [{"row": row, **one._asdict()} for row, one in sheet.rows.items()]}
    write_json(path.with_name(f"{path.stem}.key.json"), key)
    _write_csv(path, COLUMNS, rows)


def _text(texts: Mapping[str, Text], name: str) -> str:
    if name not in texts:
        raise MarError(f"The labels name {name!r}, and no text has this id.")
    return texts[name].full


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV; an apostrophe goes before anything like a formula."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(map(guarded, columns))
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    write_text(path, f"\ufeff{table.getvalue()}")  # the mark tells spreadsheets that it is UTF-8


def read_answers(file: Path, sheet: Sheet) -> dict[int, int]:
    """Return the answers of one reviewer, 1 or 0 by row; unanswered rows are left out.

    An answer is a grade (S and A are positive), or 1 / 0, yes / no, 是 / 否.

    Args:
        file: The filled-in sheet.
        sheet: The rows of the sheet as it was written.

    Raises:
        MarError: Rows are missing, duplicated or unknown, or an answer is invalid.
    """
    seen: Counter[int] = Counter()

    def answer(row: Row) -> tuple[int, int | None]:
        number = str(row.values.get("row", ""))
        if not number.isdecimal() or int(number) not in sheet.rows or "answer" not in row.values:
            raise MarError("expected a row of the sheet with the columns row and answer.")
        seen[int(number)] += 1
        if seen[int(number)] > 1:
            raise MarError(f"row {number} occurs twice.")
        return int(number), _positive(str(row.values["answer"]))

    answers = {number: given for number, given in read_rows(file, answer) if given is not None}
    missing = len(sheet.rows) - len(seen)
    if missing:
        raise MarError(f"{file} lacks {missing} of the {len(sheet.rows)} rows; leave unanswered ones in.")
    return answers


def _positive(cell: str) -> int | None:
    answer = unicodedata.normalize("NFKC", cell).strip()  # Chinese keyboards write Ａ and １
    if not answer:
        return None
    if answer.upper() in GRADES:
        return int(answer.upper() in POSITIVE_GRADES)
    if answer.lower() not in (*YES_ANSWERS, *NO_ANSWERS):
        raise MarError(f"{answer!r} is not an answer; give one of {', '.join(GRADES)}, 1 or 0.")
    return int(answer.lower() in YES_ANSWERS)


def write_disagreements(
    out: Path,
    sheet: Sheet,
    answers: Mapping[str, Mapping[int, int]],
    queries: Mapping[str, Text],
    documents: Mapping[str, Text],
) -> int:
    """Write the pairs on which experts have no majority, with their answers.

    Args:
        out: CSV file to write.
        sheet: The rows of the sheet.
        answers: Answers of each expert, by name.
        queries: Queries by id.
        documents: Documents by id.

    Returns:
        Number of pairs.
    """
    rows = []
    for row, one in sheet.rows.items():
        votes = [by_row[row] for by_row in answers.values() if row in by_row]
        if len(votes) == len(answers) and 2 * sum(votes) == len(votes):
            texts = (_text(queries, one.query_id), _text(documents, one.document_id))
            rows.append((row, *texts, *votes))
    named = [f"answer of {name}" for name in answers]
    _write_csv(out, ("row", "query", "document", *named), rows)
    return len(rows)
