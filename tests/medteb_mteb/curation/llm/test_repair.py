"""Repairs of journals: what is moved, what is refused, and what a failed one leaves."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing

import pytest

from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm import Account, JournalError, repair_answers
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal
from medteb_mteb.curation.llm.repair import readable, repair


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerJournal(path) as journal:
        journal.add(b"settings", b"k" * 16, Answer(0, "", "好"), llm="one", paid=Account(1, 2, 3, 0.5))
    return path


def names(path):
    return sorted(one.name for one in path.parent.iterdir())


def test_a_repair_needs_a_journal_for_itself(tmp_path):
    with pytest.raises(JournalError, match="There is no journal"):
        repair_answers(tmp_path / "none.sqlite")
    with AnswerJournal(tmp_path / "answers.sqlite"), pytest.raises(JournalError, match="Another process"):
        repair_answers(tmp_path / "answers.sqlite")


def test_each_repair_keeps_the_file_before_it_and_leaves_nothing_else(path):
    path.with_name(f"{path.name}.part").write_bytes(b"of a repair that was killed")
    contents = []
    for _ in range(3):
        contents.append(path.read_bytes())
        moved = repair_answers(path).moved
        assert moved.read_bytes() == contents[-1]
    asides = [f"{path.name}.damaged-{number}" for number in (1, 2, 3)]
    assert [name for name in names(path) if not name.endswith(("-wal", "-shm"))] == sorted(
        [path.name, f"{path.name}.lock", *asides]
    )


def test_the_log_is_kept_beside_the_damaged_database(path):
    log = path.with_name(f"{path.name}-wal")
    path.write_bytes(b"damaged" * 1000)
    log.write_bytes(b"log" * 1000)
    moved = repair_answers(path).moved
    assert moved.with_name(f"{moved.name}-wal").read_bytes() == b"log" * 1000
    with AnswerJournal(path) as journal:
        assert journal.size() == 0


def test_the_journal_of_another_application_is_not_moved(tmp_path):
    path = tmp_path / "judgements.sqlite"
    JudgementJournal(path).close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"another application; give another journal\.$"):
        repair_answers(path)
    assert path.read_bytes() == before
    assert names(path) == ["judgements.sqlite", "judgements.sqlite.lock"]


def test_a_folder_that_cannot_be_written_to_is_named(path):
    lock = path.with_name(f"{path.name}.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()
    with pytest.raises(JournalError, match=r"cannot be repaired .*its folder cannot be written to"):
        repair_answers(path)


def test_a_repair_that_fails_leaves_the_journal_as_it_is(path):
    def fill(fresh, database, log):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"No space left on device\); it is left as it is"):
        repair(path, AnswerJournal, fill, ())
    assert path.read_bytes() == before
    assert repair_answers(path).answers == 1  # and the next one is not hindered by it


def test_rows_are_read_up_to_the_first_that_cannot_be(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE more (content TEXT)")
        rows = [("x" * 300,) for _ in range(50)]
        db.executemany("INSERT INTO more VALUES (?)", rows)
        db.execute("UPDATE more SET content = CAST(x'ff' AS TEXT) WHERE rowid = 31")
        db.commit()
    assert list(readable(path, "more")) == rows[:30]
    assert list(readable(path, "nothing")) == []
    path.write_bytes(b"no database")
    assert list(readable(path, "more")) == []
