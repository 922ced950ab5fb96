"""Repair of a damaged journal: it is renamed, and a new one gets all rows that can still be read."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medteb_mteb.curation.llm.database import Database, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Saved", "readable", "repair"]

DatabaseT = TypeVar("DatabaseT", bound=Database[Any])


@dataclass(frozen=True)
class Saved:
    """Result of a repair.

    Attributes:
        rows: Number of paid answers recovered.
        accounts: Number of accounts recovered.
        moved: New path of the damaged database.
    """

    rows: int
    accounts: int
    moved: Path


def repair(
    path: str | Path,
    kind: type[DatabaseT],
    fill: Callable[[DatabaseT, Path, Path], None],
    others: Sequence[str],
) -> Saved:
    """Move a journal aside and write a new one with every row that can still be read.

    Args:
        path: The journal.
        kind: Kind of journal.
        fill: Takes the new journal, and the paths of the damaged database and of its write-ahead log, and
            writes everything undamaged into it, however damaged the files are.
        others: Tables to copy as far as SQLite can read them.

    Raises:
        JournalError: The file does not exist, is a database of another application, is used by another
            process or cannot be written to, or the disk is full.
    """
    from filelock import FileLock, Timeout  # lazy: filelock

    damaged = Path(path).resolve()
    if not damaged.is_file():
        raise JournalError(f"There is no journal at {damaged}.")
    lock = FileLock(damaged.with_name(damaged.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise JournalError(f"Another process works with {damaged}; wait for it.") from error
    except OSError as error:
        raise JournalError(
            f"{damaged} cannot be repaired ({error.strerror}): its folder cannot be written to."
        ) from error
    try:
        _check_application(damaged, kind)
        return _repair(damaged, kind, fill, others)
    except OSError as error:
        raise JournalError(
            f"{damaged} cannot be repaired ({error.strerror}); it is left as it is."
        ) from error
    finally:
        lock.release()


def _repair(
    damaged: Path,
    kind: type[DatabaseT],
    fill: Callable[[DatabaseT, Path, Path], None],
    others: Sequence[str],
) -> Saved:
    part, log = _beside(damaged, ".part"), _beside(damaged, "-wal")
    _remove(part)
    # The log is read before SQLite opens the file: on closing, it would be merged into the database.
    with kind(part) as fresh:
        fill(fresh, damaged, log)
        accounts = 0
        for table in others:
            rows = list(readable(damaged, table))
            fresh.insert(table, rows)
            accounts += len(rows) if table == "accounts" else 0
        row_count = fresh.size()
    _beside(part, ".lock").unlink(missing_ok=True)
    aside = _free(damaged)
    damaged.replace(aside)
    if log.is_file():
        log.replace(_beside(aside, "-wal"))
    _beside(damaged, "-shm").unlink(missing_ok=True)
    part.replace(damaged)
    return Saved(row_count, accounts, aside)


def _check_application(damaged: Path, kind: type[DatabaseT]) -> None:
    """Raise JournalError if the file is an undamaged database of another application."""
    # Immutable: SQLite leaves the log alone. A new journal has its mark only in the log.
    uri = f"{damaged.as_uri()}?immutable=1"
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(uri, uri=True)) as db:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if application in (0, kind.application) or db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            return
        raise JournalError(f"{damaged} is a database of another application; give another journal.")


def readable(damaged: Path, table: str) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table up to the first that SQLite cannot read."""
    uri = f"{damaged.as_uri()}?mode=ro"
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(uri, uri=True)) as db:
        yield from db.execute(f"SELECT * FROM {table}")  # noqa: S608


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _free(path: Path) -> Path:
    number = 1
    while (candidate := _beside(path, f".damaged-{number}")).exists():
        number += 1
    return candidate


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock", ".reserve"):
        _beside(path, suffix).unlink(missing_ok=True)
