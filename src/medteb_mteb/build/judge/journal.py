"""The journal: every grade that was paid for, durable before anything else is done with it.

A SQLite database in WAL mode. It holds digests and letters, no text, no keys:

    judgements   digest of (settings, query, passage), the settings, the grade; never changed
    failures     judgements that were asked for and not had, with the reason
    requests     requests that are decided on and not yet answered, written before they are sent
    accounts     what each judge was paid
    settings     what the digests of settings stand for

`synchronous=NORMAL`: a commit takes a fraction of a millisecond, done in the event loop as soon as an answer
is read, and survives a kill of the process at any moment. Every second a thread syncs the log to the disk
(a passive checkpoint), so that a power cut costs the last second at most. `FULL` would sync at every commit,
some milliseconds in which no answer is read.

A row of `judgements` has a fixed layout and its own checksum, so that a damaged file gives back all rows
that are still whole: see `medteb_mteb.build.judge.repair`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from medteb_mteb.build.judge.entries import ACCOUNT, KEY, Account, Failure, Request, proof
from medteb_mteb.build.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Journal", "JournalError"]

APPLICATION = 0x4D544A31
VERSION = 1
#: Given back when the disk is full, so that the answers under way can still be written.
RESERVE = 1 << 20
SYNC_SECONDS = 1.0

_SCHEMA = """
CREATE TABLE judgements (key BLOB PRIMARY KEY, settings BLOB NOT NULL, grade TEXT NOT NULL,
    proof BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE failures (key BLOB PRIMARY KEY, reason TEXT NOT NULL, attempt INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE requests (id BLOB PRIMARY KEY, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, keys BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE accounts (judge TEXT PRIMARY KEY, answers INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, estimated INTEGER NOT NULL, controls INTEGER NOT NULL,
    controls_failed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE settings (digest BLOB PRIMARY KEY, description TEXT NOT NULL) WITHOUT ROWID;
"""


class JournalError(BuildError):
    """A journal that cannot be read or written; what it holds is left as it is."""


class Journal:
    """A journal, open for one process alone; use it as a context manager.

    Args:
        path: The database; made if it is not there.

    Raises:
        JournalError: Another process has it, it is no journal, it is damaged, or there is no room.
    """

    def __init__(self, path: str | Path) -> None:
        from filelock import FileLock, Timeout

        self.path = Path(path).resolve()
        #: Why nothing more should be bought, though what is under way can still be written.
        self.trouble = ""
        self._dirty, self._closing = threading.Event(), threading.Event()
        self._syncing: threading.Thread | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_name(self.path.name + ".lock"))
            lock.acquire(timeout=0)
        except Timeout as error:
            raise JournalError(
                f"Another process buys judgements into {self.path}; wait for it, or give another journal."
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
        """A journal for reading alone, also while another process writes; empty if there is none."""
        journal = cls.__new__(cls)
        journal.path, journal.trouble, journal._syncing = Path(path).resolve(), "", None
        journal._lock = None  # type: ignore[assignment]
        there = journal.path.is_file() and journal.path.stat().st_size
        with journal._errors():
            uri = f"{journal.path.as_uri()}?mode=ro" if there else ":memory:"
            journal._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            journal._check() if there else journal._db.executescript(_SCHEMA)
        return journal

    def _open(self) -> None:
        new = not self.path.is_file() or not self.path.stat().st_size
        with self._errors():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                if new:
                    self._db.execute("PRAGMA journal_mode=WAL")
                    marks = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};"
                    self._db.executescript(f"BEGIN; {_SCHEMA} {marks} COMMIT;")
                self._check()
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute("BEGIN IMMEDIATE")  # fails here if it cannot be written
                self._db.execute("COMMIT")
            try:
                self._reserve.write_bytes(b"\0" * RESERVE)
            except OSError as error:
                self._reserve.unlink(missing_ok=True)
                raise JournalError(f"There is no room beside {self.path} ({error.strerror}).") from error
        except BaseException:
            self._db.close()
            raise
        self._syncing = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._syncing.start()

    @property
    def _reserve(self) -> Path:
        return self.path.with_name(self.path.name + ".reserve")

    def _check(self) -> None:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        problem = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise self._damaged(problem)
        if application != APPLICATION:
            raise JournalError(f"{self.path} is a database of something else; give another journal.")
        if version != VERSION:
            raise JournalError(
                f"{self.path} was written by another version of medteb (form {version}, expected {VERSION})."
            )

    def _damaged(self, problem: str) -> JournalError:
        return JournalError(
            f"{self.path} is damaged ({' '.join(problem.split())[:150]}). It is left as it is. The same "
            "command with --repair moves it aside and goes on with every judgement that can still be read."
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged(str(error)) from error
            todo = {
                sqlite3.SQLITE_FULL: "Make room",
                sqlite3.SQLITE_BUSY: "Another program has it open; close that",
                sqlite3.SQLITE_READONLY: "Make it writable, or give another journal",
                sqlite3.SQLITE_CANTOPEN: "Make it and its folder writable, or give another journal",
            }.get(code, "See whether the disk is full or failing")
            raise JournalError(
                f"{self.path} cannot be used ({error}). {todo}; the same command goes on with all that was "
                "written before."
            ) from error

    # Reading ---------------------------------------------------------------------------------------------

    def grades(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """Grades of those judgements that it holds."""
        found: dict[bytes, str] = {}
        for key, settings, grade, checksum in self._rows("judgements", "key, settings, grade, proof", keys):
            if proof(key, settings, grade) != checksum:
                raise self._damaged("a judgement does not agree with its checksum")
            found[key] = grade
        return found

    def failures(self, keys: Sequence[bytes]) -> dict[bytes, Failure]:
        """Those of the judgements that failed."""
        rows = self._rows("failures", "key, reason, attempt", keys)
        return {key: Failure(reason, attempt) for key, reason, attempt in rows}

    def _rows(self, table: str, columns: str, keys: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        with self._errors():
            for start in range(0, len(keys), 500):
                some = keys[start : start + 500]
                marks = ",".join("?" * len(some))
                # The names are ours; what comes from outside goes in as parameters.
                query = f"SELECT {columns} FROM {table} WHERE key IN ({marks})"  # noqa: S608
                yield from self._db.execute(query, some).fetchall()

    def requests(self, settings: bytes) -> list[Request]:
        """Requests that were written down and not answered."""
        with self._errors():
            rows = self._db.execute(
                "SELECT keys, attempt, control FROM requests WHERE settings = ? ORDER BY id", (settings,)
            ).fetchall()
        return [
            Request(tuple(keys[i : i + KEY] for i in range(0, len(keys), KEY)), attempt, bool(control))
            for keys, attempt, control in rows
        ]

    def account(self, judge: str) -> Account:
        """What a judge was paid, over all runs."""
        with self._errors():
            query = f"SELECT {', '.join(ACCOUNT)} FROM accounts WHERE judge = ?"  # noqa: S608
            row = self._db.execute(query, (judge,)).fetchone()
        return Account(*row) if row else Account()

    def size(self) -> int:
        """Number of judgements."""
        with self._errors():
            return int(self._db.execute("SELECT count(*) FROM judgements").fetchone()[0])

    # Writing ---------------------------------------------------------------------------------------------

    def describe(self, settings: bytes, description: Mapping[str, Any]) -> None:
        """Write down what a digest of settings stands for."""
        text = json.dumps(dict(description), sort_keys=True, ensure_ascii=False)
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (settings, text))

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Take over rows of another journal; what is there already stays."""
        with self._transaction() as db:
            for row in rows:
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608

    def decide(self, settings: bytes, requests: Iterable[Request]) -> None:
        """Write requests down before they are sent."""
        rows = _request_rows(settings, requests)
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?)", rows)

    def forget(self, settings: bytes, requests: Iterable[Request]) -> None:
        """Strike requests that will not be sent."""
        ids = [(request.id(settings),) for request in requests]
        with self._transaction() as db:
            db.executemany("DELETE FROM requests WHERE id = ?", ids)

    def settle(
        self,
        settings: bytes,
        request: Request,
        *,
        judge: str,
        grades: Mapping[bytes, str],
        failures: Mapping[bytes, Failure],
        follow: Sequence[Request],
        paid: Account,
    ) -> None:
        """Write down what has become of a request, all of it or nothing.

        Args:
            settings: Digest of the judge's settings.
            request: The request.
            judge: The account to book it on.
            grades: Grades by key.
            failures: What will not be asked for again in this run.
            follow: Requests for what is asked for again.
            paid: What is added to the account.
        """
        try:
            self._settle(settings, request, judge, grades, failures, follow, paid)
        except JournalError as error:
            cause = error.__cause__
            full = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
            if not full or not self._reserve.is_file():
                raise
            # The answer is paid for: make the room for it, and buy no more.
            self.trouble = str(error)
            self._reserve.unlink()
            self._settle(settings, request, judge, grades, failures, follow, paid)

    def _settle(
        self,
        settings: bytes,
        request: Request,
        judge: str,
        grades: Mapping[bytes, str],
        failures: Mapping[bytes, Failure],
        follow: Sequence[Request],
        paid: Account,
    ) -> None:
        with self._transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO judgements VALUES (?, ?, ?, ?)",
                [(key, settings, grade, proof(key, settings, grade)) for key, grade in grades.items()],
            )
            db.executemany("DELETE FROM failures WHERE key = ?", [(key,) for key in grades])
            db.executemany(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?)",
                [(key, failure.reason, failure.attempt) for key, failure in failures.items()],
            )
            db.execute("DELETE FROM requests WHERE id = ?", (request.id(settings),))
            db.executemany(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?)", _request_rows(settings, follow)
            )
            amounts = [getattr(paid, name) for name in ACCOUNT]
            adding = ", ".join(f"{name} = {name} + excluded.{name}" for name in ACCOUNT)
            db.execute(
                f"INSERT INTO accounts VALUES (?, {', '.join('?' * len(ACCOUNT))}) "  # noqa: S608
                f"ON CONFLICT (judge) DO UPDATE SET {adding}",
                (judge, *amounts),
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
                    # A connection of its own: a thread may not share that of the event loop.
                    db = sqlite3.connect(self.path, isolation_level=None)
                    try:
                        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    finally:
                        db.close()
                except sqlite3.Error as error:
                    self.trouble = self.trouble or f"{self.path} cannot be synced ({error})."

    def close(self) -> None:
        """Sync what is written and let others have it."""
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


def _request_rows(settings: bytes, requests: Iterable[Request]) -> list[tuple[Any, ...]]:
    return [(r.id(settings), settings, r.attempt, int(r.control), b"".join(r.keys)) for r in requests]
