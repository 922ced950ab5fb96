"""Judgements recovered from a damaged journal."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from tests.medteb_mteb.curation.judge.earlier import as_version_1
from tests.medteb_mteb.curation.judge.settled import SETTINGS, filled, key, settle, settle_until_killed

from medteb_mteb.curation.judge import JournalError, repair_journal
from medteb_mteb.curation.judge.entries import JudgeAccount, Place, Request
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.log import MAGIC, LogEntry
from medteb_mteb.curation.llm.database import Failure
from medteb_mteb.curation.llm.origins import Origin


@pytest.mark.thorough(but=["5-1024-True", "all but data-4096-True", "1-4096-False"])
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("size", [1024, 4096])
@pytest.mark.parametrize("page", [0, 1, 5, "all but data"])
def test_a_damaged_journal_is_unchanged_and_a_repair_saves_whole_rows(
    tmp_path, monkeypatch, page, size, older
):
    monkeypatch.setattr("medteb_mteb.curation.llm.database.PAGE_SIZES", (size,))
    path = tmp_path / "journal.sqlite"
    filled(path)
    if older:
        assert as_version_1(path) == (3000, 0)
    data = bytearray(path.read_bytes())
    draw = random.Random(0)
    # Pages of whatever kind: the schema, the root of a tree, a leaf.
    for number in range(1 + len(data) // size // 2) if page == "all but data" else [page]:
        if page == "all but data":  # headers of every other page, which lead to the rows
            data[2 * number * size : 2 * number * size + 12] = draw.randbytes(12)
        else:
            data[number * size : (number + 1) * size] = draw.randbytes(size)
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged.*left as it is.*--repair"):
        JudgementJournal(path)
    assert path.read_bytes() == bytes(data)
    repaired = repair_journal(path)
    lost = 3000 - repaired.judgements
    assert 0 <= lost <= 2 * 4096 // 34
    if page == "all but data":
        assert lost == 0
    assert repaired.moved.read_bytes() == bytes(data)
    with JudgementJournal(path) as journal:
        assert journal.size() == repaired.judgements
        grades = journal.grades([key(n) for n in range(3000)])
        assert len(grades) == repaired.judgements
        assert all(grades[key(n)] == "SABCD"[n // 10 % 5] for n in range(3000) if key(n) in grades)
    assert repair_journal(path).judgements == repaired.judgements  # and a whole one loses nothing
    assert repair_journal(path).moved != repaired.moved


def test_a_repair_recovers_rows_in_the_log_too(tmp_path):
    path = tmp_path / "journal.sqlite"
    child = multiprocessing.get_context("fork").Process(target=settle_until_killed, args=(path, 30))
    child.start()
    child.join()
    data = bytearray(path.read_bytes())
    data[:100] = b"\0" * 100
    path.write_bytes(data)
    assert repair_journal(path).judgements == 31


def test_a_repair_needs_a_journal_for_itself(tmp_path):
    with pytest.raises(JournalError, match="There is no journal"):
        repair_journal(tmp_path / "none.sqlite")
    with JudgementJournal(tmp_path / "journal.sqlite"), pytest.raises(JournalError, match="Another process"):
        repair_journal(tmp_path / "journal.sqlite")


@pytest.mark.parametrize("passages", [1, 10, 60, 200])
def test_a_repair_recovers_requests_of_any_length(tmp_path, passages):
    """Entries longer than a page take several pages."""
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        for start in range(0, 4 * passages, passages):
            settle(journal, range(start, start + passages))
    data = bytearray(path.read_bytes())
    data[16:40] = b"\xff" * 24
    path.write_bytes(data)
    assert repair_journal(path).judgements == 4 * passages


def test_a_repair_of_an_earlier_version_keeps_open_requests(tmp_path):
    path, following = tmp_path / "journal.sqlite", [Request((key(7), key(8)), 1, 3), Request((key(9),), 2)]
    with JudgementJournal(path) as journal:
        settle(journal, range(5), follow=following)
    assert as_version_1(path) == (5, 2)
    assert repair_journal(path).judgements == 5
    with JudgementJournal(path) as journal:
        assert sorted(journal.requests(SETTINGS), key=lambda request: request.attempt) == following


def content(path, keys):
    with JudgementJournal(path) as journal:
        return (
            journal.grades(keys), journal.places(keys), journal.origins(keys), journal.failures(keys),
            journal.requests(SETTINGS), journal.unread(SETTINGS), journal.account("one"), journal.size(),
        )  # fmt: skip


def test_a_repair_of_a_whole_journal_keeps_everything(tmp_path):
    path, keys = tmp_path / "journal.sqlite", [key(n) for n in range(6)]
    with JudgementJournal(path) as journal:
        journal.settle(
            SETTINGS, Request(tuple(keys[:3]), 0, 3), judge="one", grades={keys[0]: "S", keys[2]: "D"},
            failures={keys[4]: Failure("control", 1)}, follow=[Request((keys[1],), 1, 3)],
            paid=JudgeAccount(1, 100, 10, 0.5, 0, 1, 1), places={keys[0]: Place(2, 5), keys[2]: Place(5, 5)},
            unread=("cut", "很难说"), origin=Origin("qwen3", "fp", "2026-11-01"),
        )  # fmt: skip
    before = content(path, keys)
    assert all(before)
    repaired = repair_journal(path)
    assert (repaired.judgements, repaired.accounts) == (2, 1)
    assert content(path, keys) == before


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_file_without_judgements_becomes_an_empty_journal_and_is_kept_aside(tmp_path, size):
    path, data = tmp_path / "journal.sqlite", random.Random(size).randbytes(size)
    path.write_bytes(data)
    repaired = repair_journal(path)
    assert (repaired.judgements, repaired.accounts) == (0, 0)
    assert repaired.moved.read_bytes() == data
    with JudgementJournal(path) as journal:
        assert journal.size() == 0


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_what_is_left_of_a_journal_that_was_cut_off_is_recovered(tmp_path, share):
    path = tmp_path / "journal.sqlite"
    filled(path, 1000)
    with closing(sqlite3.connect(path)) as db:
        entries = [entry for (entry,) in db.execute("SELECT entry FROM log")]
    data = path.read_bytes()
    left = data[: int(share * len(data))]
    path.write_bytes(left)
    count = repair_journal(path).judgements
    assert count == 10 * sum(entry in left for entry in entries)
    assert 100 < count < 1000
    with JudgementJournal(path) as journal:
        grades = journal.grades([key(n) for n in range(1000)])
        assert len(grades) == count
        assert all(grades[key(n)] == "SABCD"[n // 10 % 5] for n in range(1000) if key(n) in grades)


def test_only_entries_with_their_checksum_count(tmp_path):
    """Neither the beginning of an entry in some text nor an entry with a changed grade is a judgement."""
    path = tmp_path / "journal.sqlite"
    entry = LogEntry(1, SETTINGS, Request((key(1),)), True, b"A", (0,))
    forged = replace(entry, grades=b"S").packed()[:-4] + entry.packed()[-4:]
    heads = MAGIC * 1000 + entry.packed()[:40] * 100
    path.write_bytes(b"\0" * 64 + heads + forged + b"\0" * 64)
    assert repair_journal(path).judgements == 0


OLD, NEW = Origin("old", "fp", "2026-01-01"), Origin("new", "", "2026-05-05")


def grade(journal, number, letter="A", attempt=0, origin=None):
    request = Request((key(number),), attempt)
    journal.settle(
        SETTINGS, request, judge="one", grades={key(number): letter}, failures={}, follow=(),
        paid=JudgeAccount(1), origin=origin,
    )  # fmt: skip


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("lost", ["all tables", "origins"])
def test_grades_whose_origin_is_lost_do_not_get_that_of_a_later_run(tmp_path, older, lost):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        for number in range(3):
            grade(journal, number, origin=OLD)
    if older:
        as_version_1(path)
    if lost == "origins":
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DROP TABLE origins")
    else:
        path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    assert repair_journal(path).judgements == 3
    for number in (3, 4):
        with JudgementJournal(path) as journal:
            grade(journal, number, origin=NEW)
            assert journal.origins([key(n) for n in range(number + 1)]) == {
                key(n): NEW for n in range(3, number + 1)
            }


def _fail_then_grade(path):
    """In a process of its own: the failure is in the database, its end by a grade only in the log."""
    journal = JudgementJournal(path)
    failures = {key(number): Failure("control", 1) for number in (1, 2)}
    journal.settle(
        SETTINGS, Request(tuple(failures), 1), judge="one", grades={}, failures=failures, follow=(),
        paid=JudgeAccount(1),
    )  # fmt: skip
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    grade(journal, 1, "D", attempt=2)
    os._exit(9)


def test_a_judgement_that_was_graded_after_a_failure_has_not_failed(tmp_path):
    path = tmp_path / "journal.sqlite"
    child = multiprocessing.get_context("fork").Process(target=_fail_then_grade, args=(path,))
    child.start()
    child.join()
    log = path.with_name("journal.sqlite-wal")
    log.write_bytes(b"\xff" * 32 + log.read_bytes()[32:])  # SQLite takes nothing from it
    assert repair_journal(path).judgements == 1
    with JudgementJournal(path) as journal:
        assert journal.grades([key(1), key(2)]) == {key(1): "D"}
        assert journal.failures([key(1), key(2)]) == {key(2): Failure("control", 1)}


@pytest.mark.parametrize(
    "change", ["answer = x'00'", "answer = 'text'", "attempt = 7", "keys = x'0011'", "settings = x'00'"]
)
def test_a_kept_answer_that_was_damaged_is_left_out_and_others_are_not(tmp_path, change):
    path, requests = tmp_path / "journal.sqlite", [Request((key(1), key(2)), 0, 3), Request((key(3),), 1)]
    with JudgementJournal(path) as journal:
        for request in requests:
            journal.settle(
                SETTINGS, request, judge="one", grades={}, failures={}, follow=(), paid=JudgeAccount(1),
                unread=("cut", "很难说"),
            )  # fmt: skip
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE unread SET {change} WHERE id = ?", (requests[0].id(SETTINGS),))
    if change.startswith("answer"):
        with JudgementJournal(path) as journal, pytest.raises(JournalError, match=r"damaged.*--repair"):
            journal.unread(SETTINGS)
    repair_journal(path)
    with JudgementJournal(path) as journal:
        assert journal.unread(SETTINGS) == [(requests[1], "cut", "很难说")]
