"""Grades in the journal: a row per query, passage and settings of a judge, from this build or any other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.controls import kinds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.llm import Journal

__all__ = ["Grade", "Grades", "Request", "judgement_key"]

_KEY_BYTES = 16
#: Keys of one query.
_KEYS_PER_QUERY = 500
#: A request is written down before it is sent, so that an interrupted run resumes with the same prompts.
_TABLE = """
CREATE TABLE IF NOT EXISTS grades (
    key BLOB PRIMARY KEY, request BLOB NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, grade TEXT, reason TEXT, place INTEGER, shown INTEGER, answer INTEGER
) WITHOUT ROWID
"""
_PLAN = "INSERT OR REPLACE INTO grades (key, request, number, attempt, control) VALUES (?, ?, ?, ?, ?)"
_SETTLE = "INSERT OR REPLACE INTO grades VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for the grades of some passages.

    Attributes:
        keys: Keys of the judgements, in the order of the passages.
        attempt: 0 for the first request; incremented for each passage when it is requested again.
        control: The control passages among them, see `medteb_mteb.curation.judge.controls`.
    """

    keys: tuple[bytes, ...]
    attempt: int = 0
    control: int = 0

    def id(self, settings: bytes) -> bytes:
        """Return 16 bytes that identify it under the given settings."""
        head = b"request %d %d " % (self.attempt, self.control)
        return hashlib.sha256(head + settings + b"".join(self.keys)).digest()[:_KEY_BYTES]


@dataclass(frozen=True, slots=True)
class Grade:
    """A judgement as stored; without grade and reason it was planned, and is not answered yet.

    Attributes:
        request: Id of the request.
        number: Number of the passage in the request.
        attempt: Attempt of the request.
        control: Control passages of the request.
        grade: The grade.
        reason: Why there is none.
        place: Number of the passage in its prompt, from 1.
        shown: Number of passages in the prompt, including control passages.
        answer: Row of the answer in the journal.
    """

    request: bytes
    number: int
    attempt: int
    control: int
    grade: str | None
    reason: str | None
    place: int | None
    shown: int | None
    answer: int | None

    @property
    def planned(self) -> bool:
        """Return True if it is not answered yet."""
        return self.grade is None and self.reason is None


def judgement_key(settings: bytes, query: bytes, passage: bytes) -> bytes:
    """Return a judgement's key (16 bytes), from the settings' digest and the sha256 of both texts."""
    return hashlib.sha256(settings + query + passage).digest()[:_KEY_BYTES]


class Grades:
    """The grades of all judges.

    Args:
        journal: The journal that holds them.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        journal.db.execute(_TABLE)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Grade]:
        """Return the stored judgements among some keys."""
        found: dict[bytes, Grade] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            part = keys[start : start + _KEYS_PER_QUERY]
            query = f"SELECT * FROM grades WHERE key IN ({', '.join('?' * len(part))})"  # noqa: S608
            found.update((key, Grade(*row)) for key, *row in self.journal.db.execute(query, part))
        return found

    def plan(self, settings: bytes, requests: Iterable[Request]) -> None:
        """Store requests that are going to be sent."""
        with self.journal.transaction() as db:
            db.executemany(_PLAN, _planned(settings, requests))

    def settle(
        self,
        settings: bytes,
        request: Request,
        numbers: Sequence[int],
        grades: Mapping[bytes, str],
        reasons: Mapping[bytes, str],
        *,
        answer: int,
        follow: Iterable[Request] = (),
    ) -> None:
        """Store what an answer says about the passages of a request.

        Args:
            settings: Digest of the judge's settings.
            request: The request.
            numbers: Number of the passage of each key in the prompt, from 0.
            grades: Grade by key.
            reasons: Reason by key, for passages without a grade that are not requested again.
            answer: Row of the answer in the journal.
            follow: Requests for the other passages, which are stored with it.
        """
        shown = len(numbers) + len(kinds_of(request.control))
        rows = [
            (key, request.id(settings), i, request.attempt, request.control,
             grades.get(key), reasons.get(key), numbers[i] + 1, shown, answer)
            for i, key in enumerate(request.keys)
            if key in grades or key in reasons
        ]  # fmt: skip
        with self.journal.transaction() as db:
            db.executemany(_SETTLE, rows)
            db.executemany(_PLAN, _planned(settings, follow))

    def add(self, grades: Mapping[bytes, str]) -> None:
        """Store grades that no request was sent for."""
        with self.journal.transaction() as db:
            nothing = (b"", 0, 0, 0)
            db.executemany(
                _SETTLE,
                [(key, *nothing, grade, None, None, None, None) for key, grade in grades.items()],
            )


def _planned(settings: bytes, requests: Iterable[Request]) -> list[tuple[bytes, bytes, int, int, int]]:
    return [
        (key, request.id(settings), number, request.attempt, request.control)
        for request in requests
        for number, key in enumerate(request.keys)
    ]
