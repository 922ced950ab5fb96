"""Getting judgements back out of a damaged journal.

A row of `judgements` is never changed and lies in the file as SQLite's record format has it
(https://www.sqlite.org/fileformat2.html#record_format): its header, then key, settings, grade and checksum
without a gap. So rows are found by their header anywhere in the file and its log, whatever has become of the
pages that lead to them, and believed by their checksum.
"""

from __future__ import annotations

import mmap
import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.entries import proof
from medteb_mteb.curation.judge.journal import Journal
from medteb_mteb.curation.llm.database import KEY, SETTINGS
from medteb_mteb.curation.llm.repair import repair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Repaired", "repair_journal"]

# Sizes of the columns as serial types: 2n + 12 for a blob, 2n + 13 for text; all below 128, so one byte each.
_HEADER = bytes((5, 2 * KEY + 12, 2 * SETTINGS + 12, 2 * 1 + 13, 2 * 4 + 12))
_ROW = re.compile(re.escape(_HEADER) + b"(.{%d})(.{%d})([SABCD])(.{4})" % (KEY, SETTINGS), re.DOTALL)


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
        JournalError: There is no such file, another process has it, or there is no room.
    """
    tables = ("failures", "requests", "accounts", "settings", "unread", "places", "origins", "dated")
    saved = repair(path, Journal, _judgements, tables)
    return Repaired(saved.rows, saved.accounts, saved.moved)


def _judgements(*files: Path) -> Iterator[tuple[bytes, bytes, str, bytes]]:
    for file in files:
        if not file.is_file() or not file.stat().st_size:
            continue
        with (
            file.open("rb") as stream,
            closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data,
        ):
            for match in _ROW.finditer(data):
                key, settings, grade, checksum = match[1], match[2], match[3].decode(), match[4]
                if proof(key, settings, grade) == checksum:
                    yield key, settings, grade, checksum
