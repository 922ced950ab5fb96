"""Recovery of answers from a damaged journal.

A row of `answers` is never changed and is stored in SQLite's format
(https://www.sqlite.org/fileformat2.html, section 2.1): a header with the sizes of the columns, then the
columns without a gap, in a chain of pages if they are too long for one
(`medteb_mteb.curation.llm.pages`). So rows are found by their header anywhere in the file and
its log, even if the pages that lead to them are damaged, and accepted if their checksum matches.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.llm.database import KEY_BYTES, SETTINGS_BYTES
from medteb_mteb.curation.llm.journal import UNREAD, Answer, AnswerJournal, proof
from medteb_mteb.curation.llm.pages import Bytes, Pages, file_bytes, views
from medteb_mteb.curation.llm.repair import readable, repair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["RepairedAnswers", "repair_answers"]

# The header: its size; then a number for each column, which says its type and its size. Attempts are a number
# of up to two bytes, endings are "", "cut" or "refused", and the size of the text takes one to four bytes.
_HEADER = re.compile(
    b"[\x07-\x0a]"
    + bytes((2 * KEY_BYTES + 12, 2 * SETTINGS_BYTES + 12))
    + b"([\x01\x02\x08\x09])([\x0d\x13\x1b])([\x80-\xff]{0,3}[\x00-\x7f])"
    + bytes((2 * 4 + 12,)),
    re.DOTALL,
)
_ATTEMPT_SIZES = {1: 1, 2: 2, 8: 0, 9: 0}

Row = tuple[bytes, bytes, int, str, str, bytes]


@dataclass(frozen=True)
class RepairedAnswers:
    """Result of a repair.

    Attributes:
        answers: Number of answers recovered.
        accounts: Number of accounts recovered; an LLM whose account was lost starts at zero.
        moved: New path of the damaged database.
    """

    answers: int
    accounts: int
    moved: Path


def repair_answers(path: str | Path) -> RepairedAnswers:
    """Move a journal of answers aside and write a new one with every answer that can still be read.

    An answer that is lost is bought again by the next run. Accounts and failures are taken over as far as
    SQLite can read them.

    Raises:
        JournalError: The file does not exist, is a database of another application, is used by another
            process or cannot be written to, or the disk is full.
    """
    saved = repair(path, AnswerJournal, _fill, ("accounts", "settings", "origins"))
    return RepairedAnswers(saved.rows, saved.accounts, saved.moved)


def _fill(fresh: AnswerJournal, database: Path, log: Path) -> None:
    rows = _answers(database, log)
    while chunk := list(islice(rows, 10_000)):
        fresh.insert(AnswerJournal.table, chunk)
    # A row about a lost answer would keep the next run from buying it, or would give the new one its date.
    for table in ("failures", "dated"):
        notes = readable(database, table)
        while batch := list(islice(notes, 10_000)):
            kept = fresh.known([key for key, *_ in batch])
            fresh.insert(table, (row for row in batch if row[0] in kept or _unanswered(table, row)))


def _unanswered(table: str, row: tuple[Any, ...]) -> bool:
    """Return True for the failure of a prompt that never had an answer."""
    return table == "failures" and row[1] != UNREAD and row[2] == 0


def _answers(database: Path, log: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        base, wal = (file_bytes(stack, file) for file in (database, log))
        possible = views(base, wal)
        for data in (base, wal):
            for match in _HEADER.finditer(data):
                rows = (_row(data, match, pages) for pages in possible)
                yield from islice((row for row in rows if row is not None), 1)


def _row(data: Bytes, header: re.Match[bytes], pages: Pages) -> Row | None:
    """Return the row of a header, if it is complete."""
    attempt_size = _ATTEMPT_SIZES[header[1][0]]
    ending_size, text_size = (header[2][0] - 13) // 2, (_number(header[3]) - 13) // 2
    head = len(header[0])
    size = head + KEY_BYTES + SETTINGS_BYTES + attempt_size + ending_size + text_size + 4
    if header[0][0] != head or text_size < 0 or size > len(data) + len(pages.base) + len(pages.log):
        return None
    record = pages.record(data, header.start(), size)
    if record is None:
        return None
    parts, place = [], head
    for length in (KEY_BYTES, SETTINGS_BYTES, attempt_size, ending_size, text_size, 4):
        parts.append(record[place : place + length])
        place += length
    attempt = header[1][0] - 8 if not attempt_size else int.from_bytes(parts[2], "big", signed=True)
    try:
        answer = Answer(attempt, parts[3].decode(), parts[4].decode())
    except UnicodeDecodeError:
        return None
    if proof(parts[0], parts[1], answer) != parts[5]:
        return None
    return parts[0], parts[1], attempt, answer.ending, answer.text, parts[5]


def _number(varint: bytes) -> int:
    """Return a number as SQLite writes it, seven bits to a byte."""
    number = 0
    for byte in varint:
        number = number << 7 | byte & 0x7F
    return number
