"""Origins of paid answers: the model that answered, as named by its server, and the date.

A server may answer with another model than requested, such as a dated version behind a general name. The
requested model is part of a judgement's identity. The answering model and the date are not: they are kept in
separate tables, and a build from known answers writes the same bytes on any day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mar_st.text.values import writable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

__all__ = ["ORIGINS_TABLES", "Origin", "answered", "origin_number", "origin_today", "write_origin"]

#: Characters of a server's own words that are kept.
MAX_NAME_CHARACTERS = 200

ORIGINS_TABLES = """
CREATE TABLE IF NOT EXISTS origins (number INTEGER PRIMARY KEY, model TEXT NOT NULL,
    fingerprint TEXT NOT NULL, date TEXT NOT NULL, UNIQUE (model, fingerprint, date));
CREATE TABLE IF NOT EXISTS dated (key BLOB PRIMARY KEY, origin INTEGER NOT NULL) WITHOUT ROWID;
"""

# Its number is above those in `dated`, too, whose origins a repair may have lost; larger ones are damaged.
_INSERT_ORIGIN = """
INSERT INTO origins SELECT coalesce(max(number), 0) + 1, ?, ?, ? FROM (SELECT number FROM origins
    UNION ALL SELECT origin FROM dated WHERE origin BETWEEN 0 AND 2147483647)
"""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Origin of an answer.

    Attributes:
        model: Model that answered, according to the server; empty if it names none.
        fingerprint: Its `system_fingerprint`; empty if it gives none.
        date: Day of the answer in UTC, in ISO 8601 format (`2026-11-23`).
    """

    model: str
    fingerprint: str
    date: str


def origin_today(model: str = "", fingerprint: str = "") -> Origin:
    """Return the origin of an answer that has just come in.

    Args:
        model: Name of the model according to the server.
        fingerprint: `system_fingerprint` of the server.
    """
    return Origin(_line(model), _line(fingerprint), datetime.now(UTC).date().isoformat())


def _line(text: str) -> str:
    """Return a server's words as one line that any file can hold."""
    return " ".join(writable(text).split())[:MAX_NAME_CHARACTERS]


def answered(origins: Mapping[Origin, int], what: str) -> list[dict[str, Any]]:
    """Return origins in the form of `provenance.json`, by date; what a server did not state is left out.

    Args:
        origins: Number of items of each origin.
        what: Name of the counted items.
    """
    return [
        {
            "date": origin.date,
            **({"model": origin.model} if origin.model else {}),
            **({"system_fingerprint": origin.fingerprint} if origin.fingerprint else {}),
            what: number,
        }
        for origin, number in sorted(origins.items(), key=lambda row: (row[0].date, row[0]))
    ]


def origin_number(db: sqlite3.Connection, origin: Origin) -> int:
    """Return the number of an origin, which is stored if it is new.

    Args:
        db: A journal, inside a transaction.
        origin: The origin.
    """
    values = (origin.model, origin.fingerprint, origin.date)
    query = "SELECT number FROM origins WHERE model = ? AND fingerprint = ? AND date = ?"
    row = db.execute(query, values).fetchone()
    if row is None:
        db.execute(_INSERT_ORIGIN, values)
        row = db.execute(query, values).fetchone()
    return int(row[0])


def write_origin(db: sqlite3.Connection, keys: Iterable[bytes], origin: Origin) -> None:
    """Store the origins of the entries under some keys; origins stored before stay.

    Args:
        db: A journal, inside a transaction.
        keys: The keys.
        origin: Origin of the answers.
    """
    number = origin_number(db, origin)
    db.executemany("INSERT OR IGNORE INTO dated VALUES (?, ?)", [(key, number) for key in keys])
