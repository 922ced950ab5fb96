"""Recovery of judgements from a damaged journal.

An entry of the log has a checksum, and begins with fixed bytes (`medteb_mteb.curation.judge.log`). A row of
`judgements`, which earlier versions wrote, is never changed and is stored in SQLite's record format
(https://www.sqlite.org/fileformat2.html#record_format): its header, then key, settings, grade and checksum
without a gap. So both are found anywhere in the file and its write-ahead log, even if the pages that lead to
them are damaged, and accepted if their checksum matches.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.entries import Request, answer_text, proof
from medteb_mteb.curation.judge.journal import JudgementJournal, unanswered_requests
from medteb_mteb.curation.judge.log import MAGIC, LogEntry, entry_size, read_entry
from medteb_mteb.curation.llm.database import KEY_BYTES, SETTINGS_BYTES
from medteb_mteb.curation.llm.pages import Bytes, Pages, file_bytes, views
from medteb_mteb.curation.llm.repair import readable, repair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Repaired", "repair_journal"]

# Sizes of the columns as serial types: 2n + 12 for a blob, 2n + 13 for text; all below 128, so one byte each.
_HEADER = bytes((5, 2 * KEY_BYTES + 12, 2 * SETTINGS_BYTES + 12, 2 * 1 + 13, 2 * 4 + 12))
_ROW = re.compile(
    re.escape(_HEADER) + b"(.{%d})(.{%d})([SABCD])(.{4})" % (KEY_BYTES, SETTINGS_BYTES), re.DOTALL
)


@dataclass(frozen=True)
class Repaired:
    """Result of a repair.

    Attributes:
        judgements: Number of judgements recovered.
        accounts: Number of accounts recovered; a judge whose account was lost starts at zero.
        moved: New path of the damaged database.
    """

    judgements: int
    accounts: int
    moved: Path


def repair_journal(path: str | Path) -> Repaired:
    """Move a journal aside and write a new one with every judgement that can still be read.

    A judgement that is lost is bought again by the next run. Accounts, failures and requests are taken over
    as far as SQLite can read them.

    Raises:
        JournalError: The file does not exist, another process uses it, or the disk is full.
    """
    tables = ("accounts", "settings", "places", "origins", "dated")
    saved = repair(path, JudgementJournal, _fill, tables)
    return Repaired(saved.rows, saved.accounts, saved.moved)


def _fill(fresh: JudgementJournal, database: Path, log: Path) -> None:
    with ExitStack() as stack:
        base, wal = (file_bytes(stack, file) for file in (database, log))
        rows = (row for data in (base, wal) for row in _judgements(data))
        while chunk := list(islice(rows, 10_000)):
            fresh.insert(JudgementJournal.table, chunk)
        fresh.reload()
        possible = views(base, wal)
        entries = (entry for data in (base, wal) for entry in _entries(data, possible))
        # A later run would give the number of a lost origin to its own, with another model and date.
        origins = {number for number, *_ in readable(database, "origins")}
        answered = (
            entry if entry.origin in origins else replace(entry, origin=0)
            for entry in entries
            if entry.answered
        )
        while entry_chunk := list(islice(answered, 10_000)):
            fresh.restore(entry_chunk)
    # SQLite may read rows that are older than a grade which was found without it.
    failures = (row for row in readable(database, "failures") if _is_key(row[0]))
    while failed := list(islice(failures, 10_000)):
        graded = fresh.grades([key for key, *_ in failed])
        fresh.insert("failures", (row for row in failed if row[0] not in graded))
    fresh.insert("unread", (row for row in readable(database, "unread") if _intact(row)))
    # Requests without an answer may be lost: those that SQLite can read are copied.
    for settings, request in unanswered_requests(readable(database, "log"), readable(database, "requests")):
        fresh.decide(settings, [request])


def _is_key(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == KEY_BYTES


def _intact(row: tuple[Any, ...]) -> bool:
    """Return True if a row of `unread` has the digest of its request, and its answer can be unpacked."""
    identity, settings, attempt, control, keys, _, answer = row
    try:
        answer_text(answer)
        return bool(Request((keys,), attempt, control).id(settings) == identity)
    except (TypeError, ValueError):
        return False


def _judgements(data: Bytes) -> Iterator[tuple[bytes, bytes, str, bytes]]:
    for match in _ROW.finditer(data):
        key, settings, grade, checksum = match[1], match[2], match[3].decode(), match[4]
        if proof(key, settings, grade) == checksum:
            yield key, settings, grade, checksum


def _entries(data: Bytes, possible: list[Pages]) -> Iterator[LogEntry]:
    place = data.find(MAGIC)
    while place >= 0:
        size = entry_size(data[place : place + 64])
        # The header of a row: its size; the type of the row id, which has no bytes; and the entry's size.
        head = 2 + _varint(2 * size + 12)
        if size and place >= head:
            for pages in possible:
                record = pages.record(data, place - head, head + size)
                entry = read_entry(record[head:]) if record is not None else None
                if entry is not None:
                    yield entry
                    break
        place = data.find(MAGIC, place + 1)


def _varint(number: int) -> int:
    """Return how many bytes SQLite writes for a number, seven bits to a byte."""
    return max(1, -(-number.bit_length() // 7))
