"""Recovery of answers from a damaged journal.

A row of `answers` is never changed and lies in the file as SQLite's format has it
(https://www.sqlite.org/fileformat2.html, sections 1.6, 2.1 and 4.1): a header with the sizes of the columns,
then the columns without a gap. A row too long for a page continues in a chain of overflow pages; the number
of the first follows the part stored in the row. So rows are found by their header anywhere in the file and
its log, even if the pages that lead to them are damaged, and accepted if their checksum matches.
"""

from __future__ import annotations

import mmap
import re
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.database import KEY, PAGE, SETTINGS
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal, proof
from medteb_mteb.curation.llm.repair import repair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["RepairedAnswers", "repair_answers"]

#: Sizes of a log's header and of the header of each page in it.
_LOG, _FRAME = 32, 24
# The header: its size; then a number for each column, which says its type and its size. Attempts are a number
# of up to two bytes, endings are "", "cut" or "refused", and the size of the text takes one to four bytes.
_HEADER = re.compile(
    b"[\x07-\x0a]"
    + bytes((2 * KEY + 12, 2 * SETTINGS + 12))
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
        JournalError: There is no such file, another process has it, or there is no room.
    """
    saved = repair(path, AnswerJournal, _answers, ("failures", "accounts", "settings", "origins", "dated"))
    return RepairedAnswers(saved.rows, saved.accounts, saved.moved)


def _answers(database: Path, log: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        base, ahead = (_bytes(stack, file) for file in (database, log))
        frames = range(_LOG, len(ahead) - _FRAME - PAGE + 1, _FRAME + PAGE)
        numbers = {int.from_bytes(ahead[place : place + 4], "big"): place + _FRAME for place in frames}
        # Where the log has old pages, left from before it was begun again, the database has newer ones.
        views = [_Pages(base, ahead, newer) for newer in (numbers, {})]
        for data in (base, ahead):
            for match in _HEADER.finditer(data):
                rows = (_row(data, match, view) for view in views)
                yield from islice((row for row in rows if row is not None), 1)


def _bytes(stack: ExitStack, file: Path) -> mmap.mmap | bytes:
    if not file.is_file() or not file.stat().st_size:
        return b""
    stream = stack.enter_context(file.open("rb"))
    return stack.enter_context(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


@dataclass(frozen=True, slots=True)
class _Pages:
    """Pages of a database: those that the log has, at their places in it, and all others."""

    base: mmap.mmap | bytes
    log: mmap.mmap | bytes
    newer: Mapping[int, int]

    def page(self, number: int) -> bytes:
        if number in self.newer:
            return self.log[self.newer[number] : self.newer[number] + PAGE]
        return self.base[(number - 1) * PAGE : number * PAGE]


def _row(data: mmap.mmap | bytes, header: re.Match[bytes], pages: _Pages) -> Row | None:
    """The row with a header, if it is whole."""
    attempt_size = _ATTEMPT_SIZES[header[1][0]]
    ending_size, text_size = (header[2][0] - 13) // 2, (_number(header[3]) - 13) // 2
    head = len(header[0])
    size = head + KEY + SETTINGS + attempt_size + ending_size + text_size + 4
    if header[0][0] != head or text_size < 0 or size > len(data) + len(pages.base) + len(pages.log):
        return None
    record = _record(data, header.start(), size, pages)
    if record is None:
        return None
    parts, place = [], head
    for length in (KEY, SETTINGS, attempt_size, ending_size, text_size, 4):
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


def _record(data: mmap.mmap | bytes, start: int, size: int, pages: _Pages) -> bytes | None:
    """The bytes of a record of a given size, put together from its overflow pages."""
    local = size
    if size > PAGE - 35:
        least = (PAGE - 12) * 32 // 255 - 23
        local = least + (size - least) % (PAGE - 4)
        local = local if local <= PAGE - 35 else least
    found = bytearray(data[start : start + local])
    following = int.from_bytes(data[start + local : start + local + 4], "big")
    while len(found) < size:
        page = pages.page(following) if following else b""
        if len(page) < PAGE:
            return None
        following = int.from_bytes(page[:4], "big")
        found += page[4 : 4 + size - len(found)]
    return bytes(found)


def _number(varint: bytes) -> int:
    """A number as SQLite writes it, seven bits to a byte."""
    number = 0
    for byte in varint:
        number = number << 7 | byte & 0x7F
    return number
