"""Base of the journals: a SQLite database in WAL mode that one process writes and any may read.

With `synchronous=NORMAL`, a commit takes a fraction of a millisecond. It runs in the event loop as soon as an
answer arrives, and survives a kill of the process at any moment. Every second a thread syncs the log to the
disk (a passive checkpoint), so that a power cut costs the last second at most. `FULL` would sync at every
commit and block the reading of answers for some milliseconds.

The class of a journal defines its content; every journal also has failures, accounts, descriptions of
settings and origins of its rows (see `medteb_mteb.curation.llm.origins`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.origins import ORIGINS_TABLES, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "FAILURES_TABLE",
    "KEY_BYTES",
    "PAGE_SIZES",
    "SETTINGS_BYTES",
    "SETTINGS_TABLE",
    "Database",
    "Failure",
    "JournalError",
    "settings_digest",
]

#: Bytes of a key and of a digest of settings.
KEY_BYTES, SETTINGS_BYTES = 16, 8
#: Page sizes in bytes (a commit writes whole pages): of new journals, and of those of an earlier version. A
#: damaged file may not state its own.
PAGE_SIZES = (1024, 4096)
#: Reserved bytes, freed when the disk is full, so that pending answers can still be written.
RESERVE_BYTES = 1 << 20
SYNC_SECONDS = 1.0

FAILURES_TABLE = (
    "CREATE TABLE failures (key BLOB PRIMARY KEY, reason TEXT NOT NULL, attempt INTEGER NOT NULL) "
    "WITHOUT ROWID;"
)
SETTINGS_TABLE = "CREATE TABLE settings (digest BLOB PRIMARY KEY, description TEXT NOT NULL) WITHOUT ROWID;"

AccountT = TypeVar("AccountT", bound=Account)


class JournalError(BuildError):
    """A journal that cannot be read or written; its content is not changed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a key has no valid answer, and the number of further requests for it."""

    reason: str
    attempt: int


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the digest (8 bytes) of an LLM's settings.

    Raises:
        BuildError: A setting cannot be written as JSON in UTF-8.
    """
    try:
        text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).digest()[:SETTINGS_BYTES]
    except (TypeError, ValueError) as error:
        raise BuildError(
            f"Settings of an LLM must be JSON values in UTF-8 ({str(error)[:150]}). In YAML, put dates in "
            "quotes."
        ) from error


class Database(ABC, Generic[AccountT]):
    """A journal, open in one process only; use it as a context manager.

    Args:
        path: The database; created if it is missing.

    Raises:
        JournalError: Another process uses it, it is not a journal of this kind, it is damaged, or the disk
            is full.
    """

    #: SQLite's application id, and version of the tables; any other database is refused.
    application: ClassVar[int]
    version: ClassVar[int]
    #: Earlier versions, whose journals are upgraded when they are opened for writing.
    earlier: ClassVar[tuple[int, ...]] = ()
    #: Creates the tables: `failures` and `settings` as above, `accounts` with the holder's name and the
    #: fields of an account as columns, and the class's own tables.
    schema: ClassVar[str]
    #: Creates tables that an earlier version of the same form lacks; those of origins are always created.
    later: ClassVar[str] = ""
    #: The column of `accounts` that names the holder.
    holder: ClassVar[str]
    #: The table of paid answers; its name is also used in messages.
    table: ClassVar[str]
    #: Advice on a damaged journal, a sentence.
    remedy: ClassVar[str]

    def __init__(self, path: str | Path) -> None:
        from filelock import FileLock, Timeout  # lazy: filelock

        self.path = Path(path).resolve()
        #: Why nothing more should be bought, although pending answers can still be written.
        self.trouble = ""
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._syncing: threading.Thread | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_name(self.path.name + ".lock"))
            lock.acquire(timeout=0)
        except Timeout as error:
            raise JournalError(
                f"Another process is writing {self.table} to {self.path}; wait for it, or give another "
                "journal."
            ) from error
        except OSError as error:
            raise JournalError(
                f"{self.path} cannot be written to ({error.strerror}); give another journal."
            ) from error
        self._lock = lock
        try:
            self._open()
        except BaseException:
            lock.release()
            raise

    @classmethod
    def snapshot(cls, path: str | Path) -> Self:
        """Open a journal read-only, also while another process writes; an empty one if there is no file."""
        journal = cls.__new__(cls)
        journal.path, journal.trouble, journal._syncing = Path(path).resolve(), "", None
        journal._lock = None  # type: ignore[assignment]
        exists = journal.path.is_file() and journal.path.stat().st_size
        with journal._errors():
            uri = f"{journal.path.as_uri()}?mode=ro" if exists else ":memory:"
            journal._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            if exists and not journal._blank():
                journal._check()
            else:
                journal._db.close()
                journal._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                journal._db.executescript(f"{cls.schema} {cls.later} {ORIGINS_TABLES}")
            journal._load()
        return journal

    def _open(self) -> None:
        new = not self.path.is_file() or not self.path.stat().st_size
        with self._errors():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                if new or self._blank():
                    self._db.execute(f"PRAGMA page_size={PAGE_SIZES[0]}")
                    self._db.execute("PRAGMA journal_mode=WAL")
                    marks = f"PRAGMA application_id={self.application}; PRAGMA user_version={self.version};"
                    self._db.executescript(f"BEGIN; {self.schema} {marks} COMMIT;")
                self._check()
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                # Fails here if it cannot be written.
                with self._transaction() as db:
                    self._upgrade(db)
                self._load()
            try:
                self._reserve.write_bytes(b"\0" * RESERVE_BYTES)
            except OSError as error:
                self._reserve.unlink(missing_ok=True)
                raise JournalError(f"There is no room beside {self.path} ({error.strerror}).") from error
        except BaseException:
            self._db.close()
            raise
        self._syncing = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._syncing.start()

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Make the tables that an earlier version did not have, inside a transaction."""
        for statement in f"{self.later} {ORIGINS_TABLES}".split(";"):
            db.execute(statement)
        if db.execute("PRAGMA user_version").fetchone()[0] != self.version:
            db.execute(f"PRAGMA user_version={self.version}")

    def _load(self) -> None:
        """Load the data that are kept in memory while the journal is open; nothing by default."""

    def _blank(self) -> bool:
        """Return True for a database without mark and tables: its process was killed while creating it."""
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        return not application and not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    @property
    def _reserve(self) -> Path:
        return self.path.with_name(self.path.name + ".reserve")

    def _check(self) -> None:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        problem = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise self._damaged(problem)
        if application != self.application:
            raise JournalError(f"{self.path} is a database of another application; give another journal.")
        if version not in (self.version, *self.earlier):
            raise JournalError(
                f"{self.path} was written by another version of medteb (form {version}, expected "
                f"{self.version})."
            )

    def _damaged(self, problem: str) -> JournalError:
        detail = " ".join(problem.split())[:150]
        return JournalError(f"{self.path} is damaged ({detail}). It is left as it is. {self.remedy}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged(str(error)) from error
            advice = {
                sqlite3.SQLITE_FULL: "Free disk space",
                sqlite3.SQLITE_BUSY: "Another program has it open; close that",
                sqlite3.SQLITE_READONLY: "Make it writable, or give another journal",
                sqlite3.SQLITE_CANTOPEN: "Make it and its folder writable, or give another journal",
            }.get(code, "See whether the disk is full or failing")
            raise JournalError(
                f"{self.path} cannot be used ({error}). {advice}; the same command resumes with all that was "
                "written before."
            ) from error

    # Reading ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def unpaid(self) -> AccountT:
        """Return an account that nothing was booked on."""

    def account(self, name: str) -> AccountT:
        """Return the account of an LLM or judge, over all runs."""
        nothing = self.unpaid
        columns = ", ".join(field.name for field in fields(nothing))
        with self._errors():
            query = f"SELECT {columns} FROM accounts WHERE {self.holder} = ?"  # noqa: S608
            row = self._db.execute(query, (name,)).fetchone()
        return type(nothing)(*row) if row else nothing

    def failures(self, keys: Sequence[bytes]) -> dict[bytes, Failure]:
        """Return the failures among some keys."""
        rows = self._rows("failures", "key, reason, attempt", keys)
        return {key: Failure(reason, attempt) for key, reason, attempt in rows}

    def origins(self, keys: Sequence[bytes]) -> dict[bytes, Origin]:
        """Return the origins of the entries under some keys; entries of earlier versions have none."""
        table = "dated JOIN origins ON origins.number = dated.origin"
        rows = self._rows(table, "key, model, fingerprint, date", keys)
        return {key: Origin(model, fingerprint, date) for key, model, fingerprint, date in rows}

    def size(self) -> int:
        """Return the number of paid rows."""
        with self._errors():
            return int(self._db.execute(f"SELECT count(*) FROM {self.table}").fetchone()[0])  # noqa: S608

    def _rows(
        self, table: str, columns: str, keys: Sequence[bytes | int], by: str = "key"
    ) -> Iterator[tuple[Any, ...]]:
        with self._errors():
            for start in range(0, len(keys), 500):
                chunk = keys[start : start + 500]
                marks = ",".join("?" * len(chunk))
                # The names come from this code; values from outside are passed as parameters.
                query = f"SELECT {columns} FROM {table} WHERE {by} IN ({marks})"  # noqa: S608
                yield from self._db.execute(query, chunk).fetchall()

    # Writing ---------------------------------------------------------------------------------------------

    def describe(self, settings: bytes, description: Mapping[str, Any]) -> None:
        """Store the settings behind a digest."""
        text = json.dumps(dict(description), sort_keys=True, ensure_ascii=False)
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (settings, text))

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of another journal; existing rows stay."""
        with self._transaction() as db:
            for row in rows:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608

    def _keep(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write paid rows, all or none; on a full disk into the reserved space."""
        try:
            self._write(write)
        except JournalError as error:
            cause = error.__cause__
            full = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
            if not full or not self._reserve.is_file():
                raise
            # The answer is paid for: make the room for it, and buy no more.
            self.trouble = str(error)
            self._reserve.unlink()
            self._write(write)

    def _write(self, write: Callable[[sqlite3.Connection], object]) -> None:
        with self._transaction() as db:
            write(db)

    def _book(self, db: sqlite3.Connection, name: str, paid: AccountT) -> None:
        """Add to the account of a name."""
        columns = [field.name for field in fields(paid)]
        adding = ", ".join(f"{column} = {column} + excluded.{column}" for column in columns)
        db.execute(
            f"INSERT INTO accounts VALUES (?, {', '.join('?' * len(columns))}) "  # noqa: S608
            f"ON CONFLICT ({self.holder}) DO UPDATE SET {adding}",
            (name, *astuple(paid)),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._dirty.set()

    # Syncing and closing ---------------------------------------------------------------------------------

    def _sync(self) -> None:
        while not self._closing.wait(SYNC_SECONDS):
            if self._dirty.is_set():
                self._dirty.clear()
                try:
                    # A separate connection: a thread may not share that of the event loop.
                    db = sqlite3.connect(self.path, isolation_level=None)
                    try:
                        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    finally:
                        db.close()
                except sqlite3.Error as error:
                    self.trouble = self.trouble or f"{self.path} cannot be synced ({error})."

    def close(self) -> None:
        """Sync the file and release the lock."""
        if self._syncing is not None:
            self._closing.set()
            self._syncing.join()
        self._db.close()
        if self._lock is not None:
            self._reserve.unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
