"""The tables of a journal of judgements: of a new one, and of one that an earlier release began."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.medteb_mteb.curation.judge.settled import SETTINGS, key, settle

from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.tables import SCHEMA
from medteb_mteb.curation.llm.database import Failure


def tables(path):
    with closing(sqlite3.connect(path)) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for (name,) in names}


def test_a_journal_that_lacks_later_tables_gets_them_and_keeps_its_rows(tmp_path):
    first, new = tmp_path / "first.sqlite", tmp_path / "new.sqlite"
    JudgementJournal(new).close()
    with closing(sqlite3.connect(first)) as db, db:
        db.executescript(SCHEMA)
        db.execute(f"PRAGMA application_id = {JudgementJournal.application}")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO failures VALUES (?, 'no-json', 1)", (key(7),))
        db.execute("INSERT INTO accounts VALUES ('one', 3, 300, 30, 1.5, 0, 2, 1)")
    assert len(tables(first)) < len(tables(new))
    with JudgementJournal(first) as journal:
        settle(journal, [1, 2])
    assert tables(first) == tables(new)
    with JudgementJournal(first) as journal:
        assert journal.grades([key(1), key(2)]) == {key(1): "A", key(2): "A"}
        assert journal.failures([key(7)]) == {key(7): Failure("no-json", 1)}
        assert journal.account("one") == JudgeAccount(4, 400, 40, 2.0, 0, 3, 1)


def test_opening_a_journal_again_changes_no_table(tmp_path):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        journal.describe(SETTINGS, {"model": "m"})
        settle(journal, [1])
    before = tables(path)
    assert set(before) == {
        "log", "unread", "judgements", "places", "failures", "accounts", "settings", "origins", "dated"
    }  # fmt: skip
    with JudgementJournal(path) as journal:
        assert journal.size() == 1
    assert tables(path) == before
