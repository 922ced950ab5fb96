"""The journal: every grade that was paid for, durable before anything else is done with it.

A database (see `curation.llm.database`) that holds digests and letters, and no API keys:

    log          requests, written before they are sent, and the grades received for them, see
                 `curation.judge.log`; grades are never changed
    failures     judgements that were requested without success, with the reason
    accounts     what each judge was paid
    settings     settings by digest
    unread       compressed answers that could not be read, with their requests; the only table with text
    origins      who answered on which day; `dated` gives the origin of each kept answer

Earlier versions wrote a row per grade: tables `judgements` (digest of (settings, query, passage), the
settings, the grade, a checksum), `places` and `dated`, in the order of digests. They are still read.

Entries of the log and rows of `judgements` have their own checksums: `judge.repair` recovers intact ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.entries import JudgeAccount, Place, Request, answer_text, packed_answer, proof
from medteb_mteb.curation.judge.index import GradeIndex
from medteb_mteb.curation.judge.log import NO_GRADE, LogEntry, read_entry
from medteb_mteb.curation.judge.tables import LATER_TABLES, SCHEMA
from medteb_mteb.curation.llm.database import Database
from medteb_mteb.curation.llm.origins import Origin, origin_number, write_origin

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.llm.database import Failure

__all__ = ["JudgementJournal"]


class JudgementJournal(Database[JudgeAccount]):
    """Journal of judgements, an SQLite database; see the module's docstring."""

    application = 0x4D544A31
    version = 2
    earlier = (1,)
    schema = SCHEMA
    later = LATER_TABLES
    holder = "judge"
    table = "judgements"
    remedy = (
        "The same command with --repair moves it aside and resumes with every judgement that can still be "
        "read."
    )

    @property
    def unpaid(self) -> JudgeAccount:
        """Return an empty account."""
        return JudgeAccount()

    # Opening ---------------------------------------------------------------------------------------------

    def _upgrade(self, db: sqlite3.Connection) -> None:
        super()._upgrade(db)
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'requests' AND type = 'table'"
        if db.execute(tables).fetchone()[0]:
            (last,) = db.execute("SELECT coalesce(max(number), 0) FROM log").fetchone()
            rows = db.execute("SELECT settings, keys, attempt, control FROM requests ORDER BY id").fetchall()
            entries = [
                LogEntry.unanswered(last + i, settings, Request.of_row(*row))
                for i, (settings, *row) in enumerate(rows, start=1)
            ]
            db.executemany("INSERT INTO log VALUES (?, ?)", [(one.number, one.packed()) for one in entries])
            db.execute("DROP TABLE requests")

    def reload(self) -> None:
        """Reload the data kept in memory, after `insert`."""
        self._load()

    def _load(self) -> None:
        self._index, self._last = GradeIndex(), 0
        #: Requests without an answer: number by id.
        self._unanswered: dict[bytes, int] = {}
        self._origins: dict[int, Origin] = {}
        with self._errors():
            names = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
            #: Whether requests are stored as an earlier version did; only in a snapshot.
            self._older_requests = "requests" in names
            self._failed = {key for (key,) in self._db.execute("SELECT key FROM failures")}
            #: Whether an earlier version has written grades.
            self._older = "judgements" in names and self._first("judgements")
            for number, content in (
                self._db.execute("SELECT number, entry FROM log") if "log" in names else ()
            ):
                self._note(self._entry(number, content))

    def _first(self, table: str) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None  # noqa: S608

    def _entry(self, number: int, content: Any) -> LogEntry:
        entry = read_entry(content)
        if entry is None or entry.number != number:
            raise self._damaged("a judgement does not agree with its checksum")
        return entry

    def _note(self, entry: LogEntry) -> None:
        """Update the data in memory after a write."""
        self._last = max(self._last, entry.number)
        if entry.answered:
            graded = zip(entry.request.keys, entry.grades, strict=True)
            self._index.add(
                entry.number, ((key, i) for i, (key, grade) in enumerate(graded) if grade != NO_GRADE)
            )
        else:
            self._unanswered[entry.request.id(entry.settings)] = entry.number

    # Reading ---------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the number of grades."""
        return len(self._index) + (super().size() if self._older else 0)

    def grades(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """Return the grades of those judgements that it holds."""
        by_key = {key: chr(entry.grades[i]) for key, (entry, i) in self._graded(keys).items()}
        if not self._older:
            return by_key
        columns, older_keys = "key, settings, grade, proof", [key for key in keys if key not in by_key]
        for key, settings, grade, checksum in self._rows("judgements", columns, older_keys):
            if proof(key, settings, grade) != checksum:
                raise self._damaged("a judgement does not agree with its checksum")
            by_key[key] = grade
        return by_key

    def places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """Return the places of the passages of graded judgements; some earlier grades have none."""
        by_key = {key: entry.place(i) for key, (entry, i) in self._graded(keys).items()}
        if self._older:
            older_keys = [key for key in keys if key not in by_key]
            rows = self._rows("places", "key, place, shown", older_keys)
            by_key |= {key: Place(place, shown) for key, place, shown in rows}
        return {key: place for key, place in by_key.items() if place is not None}

    def failures(self, keys: Sequence[bytes]) -> dict[bytes, Failure]:
        """Return the failures among some keys."""
        return super().failures([key for key in keys if key in self._failed])

    def origins(self, keys: Sequence[bytes]) -> dict[bytes, Origin]:
        """Return the origins of the entries under some keys; entries of earlier versions have none."""
        graded = self._graded(keys)
        new = sorted({entry.origin for entry, _ in graded.values()} - {0, *self._origins})
        for number, *origin in self._rows("origins", "number, model, fingerprint, date", new, "number"):
            self._origins[number] = Origin(*origin)
        known = {key: self._origins.get(entry.origin) for key, (entry, _) in graded.items()}
        by_key = {key: origin for key, origin in known.items() if origin is not None}
        return by_key | super().origins([key for key in keys if key not in graded])

    def _graded(self, keys: Sequence[bytes]) -> dict[bytes, tuple[LogEntry, int]]:
        """Return the entries in the log that grade some keys, and where in them."""
        places = self._index.find(keys)
        numbers = sorted({number for key_places in places.values() for number, _ in key_places})
        rows = self._rows("log", "number, entry", numbers, "number")
        entries = {number: self._entry(number, content) for number, content in rows}
        graded = {}
        for key, key_places in places.items():
            for number, position in key_places:
                entry = entries.get(number)
                if entry is not None and entry.request.keys[position] == key:
                    graded[key] = entry, position
        return graded

    def requests(self, settings: bytes) -> list[Request]:
        """Return the requests that were written down and not answered."""
        rows = self._rows("log", "number, entry", list(self._unanswered.values()), "number")
        entries = [self._entry(number, content) for number, content in rows]
        unanswered = [entry.request for entry in entries if entry.settings == settings and not entry.answered]
        if self._older_requests:
            with self._errors():
                older = "SELECT keys, attempt, control FROM requests WHERE settings = ? ORDER BY id"
                unanswered += [
                    Request.of_row(*row) for row in self._db.execute(older, (settings,)).fetchall()
                ]
        return unanswered

    def unread(self, settings: bytes) -> list[tuple[Request, str, str]]:
        """Return the answers that could not be read in full, first attempts first: request, ending, text.

        Raises:
            JournalError: The bytes of a stored answer are damaged.
        """
        with self._errors():
            rows = self._db.execute(
                "SELECT keys, attempt, control, ending, answer FROM unread WHERE settings = ? "
                "ORDER BY attempt, id",
                (settings,),
            ).fetchall()
        try:
            return [(Request.of_row(*row[:3]), row[3], answer_text(row[4])) for row in rows]
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def reread(
        self,
        settings: bytes,
        request: Request,
        grades: Mapping[bytes, str],
        places: Mapping[bytes, Place],
    ) -> None:
        """Store grades that were parsed from a stored answer, and delete the answer.

        Args:
            settings: Digest of the judge's settings.
            request: The request.
            grades: Grades by key.
            places: Places of the passages in the prompt, by key.
        """
        identity = request.id(settings)
        origin = self.origins([identity]).get(identity)
        entry: LogEntry | None = None

        def write(db: sqlite3.Connection) -> None:
            nonlocal entry
            entry = self._write_grades(db, None, settings, request, grades, places, origin)
            db.execute("DELETE FROM unread WHERE id = ?", (identity,))
            db.execute("DELETE FROM dated WHERE key = ?", (identity,))

        self._keep(write)
        self._remember(entry, grades, origin)

    def decide(self, settings: bytes, requests: Iterable[Request]) -> None:
        """Write requests down before they are sent."""
        with self._transaction() as db:
            entries = self._write_requests(db, settings, requests)
        for entry in entries:
            self._note(entry)

    def forget(self, settings: bytes, requests: Iterable[Request]) -> None:
        """Delete requests that will not be sent."""
        ids = [one for request in requests if (one := request.id(settings)) in self._unanswered]
        with self._transaction() as db:
            db.executemany("DELETE FROM log WHERE number = ?", [(self._unanswered[one],) for one in ids])
        for one in ids:
            self._unanswered.pop(one, None)  # a request may be given twice

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
        """Store the outcome of a request, all of it or nothing.

        Args:
            settings: Digest of the judge's settings.
            request: The request.
            judge: The judge whose account is charged.
            grades: Grades by key.
            failures: Judgements that will not be requested again in this run.
            follow: Requests that repeat failed judgements.
            paid: Amount added to the account.
            places: Places of the passages, by key; None for a judge that grades each pair separately.
            unread: Ending and text of an answer to keep.
            origin: Source and date of the answer; None without an answer.
        """
        identity = request.id(settings)
        entry: LogEntry | None = None
        repeats: list[LogEntry] = []

        def write(db: sqlite3.Connection) -> None:
            nonlocal entry, repeats
            number = self._unanswered.get(identity)
            entry = self._write_grades(db, number, settings, request, grades, places or {}, origin)
            db.executemany(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?)",
                [(key, failure.reason, failure.attempt) for key, failure in failures.items()],
            )
            repeats = self._write_requests(db, settings, follow, above=self._last + 1)
            if unread is not None:
                keys, text = b"".join(request.keys), packed_answer(unread[1])
                row = (identity, settings, request.attempt, request.control, keys, unread[0], text)
                db.execute("INSERT OR REPLACE INTO unread VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                if origin is not None:
                    write_origin(db, [identity], origin)
            self._book(db, judge, paid)

        self._keep(write)
        self._unanswered.pop(identity, None)
        self._remember(entry, grades, origin)
        self._failed.update(failures)
        for one in repeats:
            self._note(one)

    def restore(self, entries: Iterable[LogEntry]) -> None:
        """Take over entries of another journal; grades that are there already stay."""
        with self._transaction() as db:
            for entry in entries:
                numbered = replace(entry, number=self._last + 1)
                known = self.grades(entry.request.keys) if entry.answered else {}
                graded = zip(entry.request.keys, entry.grades, strict=True)
                letters = bytes(NO_GRADE if key in known else grade for key, grade in graded)
                if entry.answered and set(letters) <= {NO_GRADE}:
                    continue
                numbered = replace(numbered, grades=letters)
                db.execute("INSERT INTO log VALUES (?, ?)", (numbered.number, numbered.packed()))
                self._note(numbered)

    def _write_requests(
        self, db: sqlite3.Connection, settings: bytes, requests: Iterable[Request], above: int | None = None
    ) -> list[LogEntry]:
        """Store the requests that are not stored yet; return their entries."""
        last = self._last if above is None else above
        new = {request.id(settings): request for request in requests}
        missing = (request for one, request in new.items() if one not in self._unanswered)
        entries = [LogEntry.unanswered(last + i, settings, request) for i, request in enumerate(missing, 1)]
        db.executemany("INSERT INTO log VALUES (?, ?)", [(one.number, one.packed()) for one in entries])
        return entries

    def _write_grades(
        self,
        db: sqlite3.Connection,
        number: int | None,
        settings: bytes,
        request: Request,
        grades: Mapping[bytes, str],
        places: Mapping[bytes, Place],
        origin: Origin | None,
    ) -> LogEntry | None:
        """Write down the grades that are not known yet, in the request's entry or a new one.

        Returns:
            The entry, or None if the request has no new grade; then an existing entry is deleted.
        """
        known = self.grades(list(grades)) if grades else {}
        letters = bytes(
            ord(grades[key]) if key in grades and key not in known else NO_GRADE for key in request.keys
        )
        no_longer_failed = [(key,) for key in grades if key in self._failed]
        if no_longer_failed:
            db.executemany("DELETE FROM failures WHERE key = ?", no_longer_failed)
        if set(letters) <= {NO_GRADE}:
            if number is not None:
                db.execute("DELETE FROM log WHERE number = ?", (number,))
            return None
        key_places = [places.get(key) for key in request.keys]
        entry = LogEntry(
            self._last + 1 if number is None else number,
            settings,
            request,
            True,
            letters,
            tuple(0 if place is None else place.place for place in key_places),
            max((place.shown for place in key_places if place is not None), default=0),
            0 if origin is None else self._number(db, origin),
        )
        if number is None:
            db.execute("INSERT INTO log VALUES (?, ?)", (entry.number, entry.packed()))
        else:
            # The entry has the same length, so it overwrites the same bytes.
            db.execute("UPDATE log SET entry = ? WHERE number = ?", (entry.packed(), number))
        return entry

    def _number(self, db: sqlite3.Connection, origin: Origin) -> int:
        for number, known in self._origins.items():
            if known == origin:
                return number
        return origin_number(db, origin)

    def _remember(self, entry: LogEntry | None, grades: Mapping[bytes, str], origin: Origin | None) -> None:
        """Remember grades once they are written down."""
        if entry is not None:
            self._note(entry)
            if origin is not None:
                self._origins[entry.origin] = origin
        self._failed.difference_update(grades)


def unanswered_requests(
    log: Iterable[Sequence[Any]], requests: Iterable[Sequence[Any]]
) -> list[tuple[bytes, Request]]:
    """Return requests without an answer, with the digests of their settings.

    Args:
        log: Rows of `log`; rows with a wrong checksum are left out.
        requests: Rows of `requests`, from an earlier version.
    """
    entries = [entry for _, content in log if (entry := read_entry(content)) is not None]
    unanswered = [(entry.settings, entry.request) for entry in entries if not entry.answered]
    return unanswered + [(settings, Request.of_row(keys, *rest)) for _, settings, *rest, keys in requests]
