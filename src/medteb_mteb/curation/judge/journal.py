"""The journal: every grade that was paid for, durable before anything else is done with it.

A database (see `curation.llm.database`) that holds digests and letters, and no keys of an endpoint:

    judgements   digest of (settings, query, passage), the settings, the grade; never changed
    failures     judgements that were asked for and not had, with the reason
    requests     requests that are decided on and not yet answered, written before they are sent
    accounts     what each judge was paid
    settings     what the digests of settings stand for
    unread       answers, compressed, that hold judgements which could not be read, each with its request; the
                 one table with text
    places       where in its prompt a graded passage stood, counted from 1, and of how many
    origins      who answered on which day, and `dated`, which judgement or answer that is kept came of it

A row of `judgements` has a fixed layout and its own checksum, so that a damaged file gives back all rows
that are still whole: see `medteb_mteb.curation.judge.repair`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.entries import JudgeAccount, Place, Request, proof
from medteb_mteb.curation.llm.database import FAILURES_TABLE, KEY, SETTINGS_TABLE, Database
from medteb_mteb.curation.llm.origins import write_origin

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.llm.database import Failure
    from medteb_mteb.curation.llm.origins import Origin

__all__ = ["Journal"]


class Journal(Database[JudgeAccount]):
    """Journal of judgements, an SQLite database; see the module's docstring."""

    application = 0x4D544A31
    version = 1
    schema = f"""
CREATE TABLE judgements (key BLOB PRIMARY KEY, settings BLOB NOT NULL, grade TEXT NOT NULL,
    proof BLOB NOT NULL) WITHOUT ROWID;
{FAILURES_TABLE}
CREATE TABLE requests (id BLOB PRIMARY KEY, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, keys BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE accounts (judge TEXT PRIMARY KEY, answers INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, estimated INTEGER NOT NULL, controls INTEGER NOT NULL,
    controls_failed INTEGER NOT NULL) WITHOUT ROWID;
{SETTINGS_TABLE}
"""
    # Journals of earlier versions have it not.
    later = """
CREATE TABLE IF NOT EXISTS unread (id BLOB PRIMARY KEY, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, keys BLOB NOT NULL, ending TEXT NOT NULL, answer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (key BLOB PRIMARY KEY, place INTEGER NOT NULL, shown INTEGER NOT NULL)
    WITHOUT ROWID;
"""
    holder = "judge"
    table = "judgements"
    remedy = (
        "The same command with --repair moves it aside and resumes with every judgement that can still be "
        "read."
    )

    @property
    def unpaid(self) -> JudgeAccount:
        """An empty account."""
        return JudgeAccount()

    def grades(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """Grades of those judgements that it holds."""
        found: dict[bytes, str] = {}
        for key, settings, grade, checksum in self._rows("judgements", "key, settings, grade, proof", keys):
            if proof(key, settings, grade) != checksum:
                raise self._damaged("a judgement does not agree with its checksum")
            found[key] = grade
        return found

    def places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """Where the passages of graded judgements stood; grades of earlier versions have no place."""
        return {
            key: Place(place, shown) for key, place, shown in self._rows("places", "key, place, shown", keys)
        }

    def requests(self, settings: bytes) -> list[Request]:
        """Requests that were written down and not answered."""
        with self._errors():
            rows = self._db.execute(
                "SELECT keys, attempt, control FROM requests WHERE settings = ? ORDER BY id", (settings,)
            ).fetchall()
        return [_request(*row) for row in rows]

    def unread(self, settings: bytes) -> list[tuple[Request, str, str]]:
        """Answers that could not be read in full, first attempts first: request, ending, text."""
        with self._errors():
            rows = self._db.execute(
                "SELECT keys, attempt, control, ending, answer FROM unread WHERE settings = ? "
                "ORDER BY attempt, id",
                (settings,),
            ).fetchall()
        return [
            (_request(keys, attempt, control), ending, zlib.decompress(answer).decode())
            for keys, attempt, control, ending, answer in rows
        ]

    def reread(
        self,
        settings: bytes,
        request: Request,
        grades: Mapping[bytes, str],
        places: Mapping[bytes, Place],
    ) -> None:
        """Write down grades that were read in an answer that is kept; the answer is not kept any more.

        Args:
            settings: Digest of the judge's settings.
            request: The request.
            grades: Grades by key.
            places: Where the passages of the request stood, by key.
        """
        kept = request.id(settings)
        origin = self.origins([kept]).get(kept)

        def write(db: sqlite3.Connection) -> None:
            _write_grades(db, settings, grades, places, origin)
            db.execute("DELETE FROM unread WHERE id = ?", (kept,))
            db.execute("DELETE FROM dated WHERE key = ?", (kept,))

        self._keep(write)

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
        paid: JudgeAccount,
        places: Mapping[bytes, Place] | None = None,
        unread: tuple[str, str] | None = None,
        origin: Origin | None = None,
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
            places: Where the passages stood, by key; None of a judge that sees them one by one.
            unread: Ending and text of an answer that is kept.
            origin: Who answered, and when; None: there is no answer.
        """

        def write(db: sqlite3.Connection) -> None:
            _write_grades(db, settings, grades, places or {}, origin)
            db.executemany(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?)",
                [(key, failure.reason, failure.attempt) for key, failure in failures.items()],
            )
            db.execute("DELETE FROM requests WHERE id = ?", (request.id(settings),))
            db.executemany(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?)", _request_rows(settings, follow)
            )
            if unread is not None:
                row = _request_rows(settings, [request])[0]
                text = zlib.compress(unread[1].encode("utf-8", "replace"), 9)
                db.execute(
                    "INSERT OR REPLACE INTO unread VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, unread[0], text)
                )
                if origin is not None:
                    write_origin(db, [row[0]], origin)
            self._book(db, judge, paid)

        self._keep(write)


def _write_grades(
    db: sqlite3.Connection,
    settings: bytes,
    grades: Mapping[bytes, str],
    places: Mapping[bytes, Place],
    origin: Origin | None,
) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO judgements VALUES (?, ?, ?, ?)",
        [(key, settings, grade, proof(key, settings, grade)) for key, grade in grades.items()],
    )
    db.executemany(
        "INSERT OR IGNORE INTO places VALUES (?, ?, ?)",
        [(key, places[key].place, places[key].shown) for key in grades if key in places],
    )
    if origin is not None:
        write_origin(db, grades, origin)
    db.executemany("DELETE FROM failures WHERE key = ?", [(key,) for key in grades])


def _request(keys: bytes, attempt: int, control: int) -> Request:
    return Request(tuple(keys[i : i + KEY] for i in range(0, len(keys), KEY)), attempt, control)


def _request_rows(settings: bytes, requests: Iterable[Request]) -> list[tuple[Any, ...]]:
    return [(r.id(settings), settings, r.attempt, r.control, b"".join(r.keys)) for r in requests]
