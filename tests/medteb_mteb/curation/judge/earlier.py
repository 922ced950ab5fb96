"""Journals of judgements as version 1 wrote them: a row per grade, in tables in the order of digests."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from medteb_mteb.curation.judge.entries import proof
from medteb_mteb.curation.judge.log import NO_GRADE, read_entry

REQUESTS = """CREATE TABLE requests (id BLOB PRIMARY KEY, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, keys BLOB NOT NULL) WITHOUT ROWID"""


def as_version_1(path):
    """Rewrite a journal of today; return how many grades and open requests it holds."""
    grades = requests = 0
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(REQUESTS)
        for (content,) in db.execute("SELECT entry FROM log").fetchall():
            entry = read_entry(content)
            request = entry.request
            if not entry.answered:
                row = (request.attempt, request.control, b"".join(request.keys))
                settings = entry.settings
                db.execute(
                    "INSERT INTO requests VALUES (?, ?, ?, ?, ?)", (request.id(settings), settings, *row)
                )
                requests += 1
                continue
            for i, (key, letter) in enumerate(zip(request.keys, entry.grades, strict=True)):
                if letter == NO_GRADE:
                    continue
                grade, place = chr(letter), entry.place(i)
                row = (key, entry.settings, grade, proof(key, entry.settings, grade))
                db.execute("INSERT INTO judgements VALUES (?, ?, ?, ?)", row)
                if place is not None:
                    db.execute("INSERT INTO places VALUES (?, ?, ?)", (key, place.place, place.shown))
                if entry.origin:
                    db.execute("INSERT INTO dated VALUES (?, ?)", (key, entry.origin))
                grades += 1
        db.execute("DROP TABLE log")
        db.execute("PRAGMA user_version = 1")
    return grades, requests
