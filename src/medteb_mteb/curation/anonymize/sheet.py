"""A sheet of doubtful identifiers, to be filled in by a person who knows the site: writes and reads it."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from mar_st.errors import MarError
from mar_st.files import write_text
from medteb_mteb.curation.anonymize.checks import plain
from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS
from medteb_mteb.curation.files.read import read_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.anonymize.known import Known

__all__ = ["COLUMNS", "Answers", "read_sheet", "write_sheet"]

#: Columns of a sheet; the first is filled in by a person.
COLUMNS = ("identifier", "kind", "value", "count", "example")
_YES, _NO = frozenset({"yes", "y", "1", "是", "true"}), frozenset({"no", "n", "0", "否", "false"})
#: Characters shown before and after a value.
_CONTEXT_LENGTH = 20
#: Spreadsheets treat a cell that begins with one of these as a formula.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Answers:
    """Answers of a reviewer on doubtful identifiers.

    Attributes:
        identifiers: Values that are identifiers, by kind.
        cleared: Kinds and values that are not identifiers.
        open: Number of rows without an answer.
    """

    identifiers: Mapping[str, tuple[str, ...]]
    cleared: frozenset[tuple[str, str]]
    open: int


def write_sheet(
    source: str | Path,
    path: str | Path,
    *,
    kinds: Iterable[str] | None = None,
    known: Known | None = None,
    columns: Mapping[str, str] | None = None,
) -> int:
    """Write the values that only strict mode would replace, each once, the most frequent first.

    The sheet holds identifiers: it is readable only by its owner, and must be kept with the source.

    Args:
        source: See `read_texts`.
        path: CSV file to write; it must not exist.
        kinds: Kinds to look for; default those of strict mode without `DATE`.
        known: Known identifiers, which need no review.
        columns: See `read_texts`.

    Returns:
        Number of values.

    Raises:
        MarError: The file exists or cannot be written, or the source cannot be read.
    """
    file = Path(path)
    if file.exists():
        raise MarError(f"{file} exists and may hold answers; give the name of a new file.")
    if kinds is None:
        kinds = [kind for kind in IDENTIFIER_KINDS if kind != "DATE"]

    usual, strict = Finder(kinds, known), Finder(kinds, known, strict=True)
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for text in tqdm(read_texts(source, columns), "looking", unit=" texts", disable=None):
        fields = [text.title, text.text]
        for field, certain, all_ in zip(fields, usual.together(fields), strict.together(fields), strict=True):
            for start, end, kind in all_:
                if any(start < span.end and span.start < end for span in certain):
                    continue
                key = (kind, field[start:end])
                counts[key] += 1
                examples.setdefault(key, _example(field, start, end))
    content = io.StringIO()
    writer = csv.writer(content)
    writer.writerow(COLUMNS)
    for (kind, value), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        writer.writerow(["", kind, _cell(value), count, _cell(examples[kind, value])])
    write_text(file, "\ufeff" + content.getvalue(), private=True)
    return len(counts)


def _example(text: str, start: int, end: int) -> str:
    before, after = text[max(0, start - _CONTEXT_LENGTH) : start], text[end : end + _CONTEXT_LENGTH]
    shown = f"{before}【{text[start:end]}】{after}"
    return " ".join(shown.split())


def _cell(value: str) -> str:
    """Return a value that spreadsheets do not treat as a formula; `read_sheet` removes the apostrophe."""
    return f"'{value}" if value.startswith((*_FORMULA_PREFIXES, "'")) else value


def read_sheet(path: str | Path) -> Answers:
    """Return the answers of a sheet whose first column says yes or no; rows without an answer are counted.

    Raises:
        MarError: The file cannot be read or is not such a sheet, or a row is invalid.
    """
    file = Path(path)
    try:
        rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline="")))
    except OSError as error:
        raise MarError(f"{file} cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise MarError(f"{file} is not a CSV file in UTF-8; save the sheet as 'CSV UTF-8'.") from error
    if not rows or tuple(cell.strip() for cell in rows[0][: len(COLUMNS)]) != COLUMNS:
        raise MarError(f"{file} is not a sheet of --review: its columns are {', '.join(COLUMNS)}.")
    yes: dict[str, set[str]] = {}
    cleared: set[tuple[str, str]] = set()
    open_rows = 0
    for number, row in enumerate(rows[1:], start=2):
        if not any(row):
            continue
        # The row itself stays out of messages: it is private.
        if len(row) < 3 or row[1] not in IDENTIFIER_KINDS:
            raise MarError(f"{file}, row {number}: expected an answer, a kind and a value.")
        answer, kind, value = row[0].strip().lower(), row[1], row[2]
        value = value.removeprefix("'")
        if answer in _YES:
            yes.setdefault(kind, set()).add(value)
        elif answer in _NO:
            cleared.add((kind, plain(value)))
        elif answer:
            raise MarError(f"{file}, row {number}: the answer is yes or no (是, 否), or empty.")
        else:
            open_rows += 1
    identifiers = {kind: tuple(sorted(values)) for kind, values in sorted(yes.items())}
    return Answers(identifiers, frozenset(cleared), open_rows)
