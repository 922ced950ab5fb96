"""Getting judgements back out of a damaged journal.

A row of `judgements` is never changed and lies in the file as SQLite's record format has it
(https://www.sqlite.org/fileformat2.html#record_format): its header, then key, settings, grade and checksum
without a gap. So rows are found by their header anywhere in the file and its log, whatever has become of the
pages that lead to them, and believed by their checksum.
"""

from __future__ import annotations

import mmap
import re
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.build.judge.entries import KEY, SETTINGS, proof
from medteb_mteb.build.judge.journal import Journal, JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Repaired", "repair_journal"]

# Sizes of the columns as serial types: 2n + 12 for a blob, 2n + 13 for text; all below 128, so one byte each.
_HEADER = bytes((5, 2 * KEY + 12, 2 * SETTINGS + 12, 2 * 1 + 13, 2 * 4 + 12))
_ROW = re.compile(re.escape(_HEADER) + b"(.{%d})(.{%d})([SABCD])(.{4})" % (KEY, SETTINGS), re.DOTALL)
_OTHERS = ("failures", "requests", "accounts", "settings")


@dataclass(frozen=True)
class Repaired:
    """What was got back.

    Attributes:
        judgements: Number of judgements.
        accounts: Number of accounts; a judge whose account was lost starts from nothing.
        moved: Where the damaged database is now.
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
    from filelock import FileLock, Timeout

    damaged = Path(path).resolve()
    if not damaged.is_file():
        raise JournalError(f"There is no journal at {damaged}.")
    lock = FileLock(damaged.with_name(damaged.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise JournalError(f"Another process works with {damaged}; wait for it.") from error
    try:
        return _repair(damaged)
    except OSError as error:
        raise JournalError(
            f"{damaged} cannot be repaired ({error.strerror}); it is left as it is."
        ) from error
    finally:
        lock.release()


def _repair(damaged: Path) -> Repaired:
    part = damaged.with_name(damaged.name + ".part")
    _remove(part)
    # Read the log before SQLite opens the file: on closing, it would be merged into the database.
    rows = [row for file in (damaged, _beside(damaged, "-wal")) for row in _judgements(file)]
    with Journal(part) as fresh:
        for start in range(0, len(rows), 10_000):
            fresh.insert("judgements", rows[start : start + 10_000])
        accounts = 0
        for table in _OTHERS:
            found = list(_readable(damaged, table))
            fresh.insert(table, found)
            accounts += len(found) if table == "accounts" else 0
        kept = fresh.size()
    part.with_name(part.name + ".lock").unlink(missing_ok=True)
    aside = _free(damaged)
    damaged.replace(aside)
    log = _beside(damaged, "-wal")
    if log.is_file():
        log.replace(_beside(aside, "-wal"))
    _beside(damaged, "-shm").unlink(missing_ok=True)
    part.replace(damaged)
    return Repaired(kept, accounts, aside)


def _judgements(file: Path) -> Iterator[tuple[bytes, bytes, str, bytes]]:
    if not file.is_file() or not file.stat().st_size:
        return
    with file.open("rb") as stream, closing(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) as data:
        for match in _ROW.finditer(data):
            key, settings, grade, checksum = match[1], match[2], match[3].decode(), match[4]
            if proof(key, settings, grade) == checksum:
                yield key, settings, grade, checksum


def _readable(damaged: Path, table: str) -> Iterator[tuple[object, ...]]:
    """Rows of a table up to the first that SQLite cannot read."""
    uri = f"{damaged.as_uri()}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as db:
        yield from db.execute(f"SELECT * FROM {table}")  # noqa: S608


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _free(path: Path) -> Path:
    number = 1
    while (found := _beside(path, f".damaged-{number}")).exists():
        number += 1
    return found


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock", ".reserve"):
        _beside(path, suffix).unlink(missing_ok=True)
