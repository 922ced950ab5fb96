from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
from contextlib import closing

import pytest
from tests.medteb_mteb.curation.judge.earlier import as_version_1
from tests.medteb_mteb.curation.judge.settled import SETTINGS, filled, key, settle, settle_until_killed
from tests.medteb_mteb.curation.power_cut import Disk

from medteb_mteb.curation.judge import JournalError, judge, repair_journal
from medteb_mteb.curation.judge.entries import JudgeAccount, Request
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm.database import Failure, settings_digest


def test_the_next_run_finds_settled_grades(tmp_path):
    path = tmp_path / "deep" / "journal.sqlite"
    with JudgementJournal(path) as journal:
        settle(journal, range(5))
        again = Request((key(7),), 1, control=True)
        settle(journal, [8], failures={key(9): Failure("refused", 1)}, follow=[again])
        assert journal.size() == 6
    with JudgementJournal(path) as journal:
        assert journal.grades([key(n) for n in range(9)]) == {key(n): "A" for n in (0, 1, 2, 3, 4, 8)}
        assert journal.failures([key(9), key(1)]) == {key(9): Failure("refused", 1)}
        assert journal.requests(SETTINGS) == [again]
        assert journal.requests(settings_digest({"model": "n"})) == []
        assert journal.account("one") == JudgeAccount(2, 200, 20, 1.0, 0, 2, 0)
        assert journal.account("two") == JudgeAccount()
        journal.forget(SETTINGS, [again])
        settle(journal, [9])  # a grade puts an end to its failure
        assert journal.failures([key(9)]) == {}
        settle(journal, [1], grade="D")  # and is never changed
        assert journal.grades([key(1)]) == {key(1): "A"}
    assert sorted(p.name for p in path.parent.iterdir()) == ["journal.sqlite", "journal.sqlite.lock"]


def test_a_killed_process_leaves_all_that_it_settled(tmp_path):
    path = tmp_path / "journal.sqlite"
    child = multiprocessing.get_context("fork").Process(target=settle_until_killed, args=(path, 20))
    child.start()
    child.join()
    assert child.exitcode == 9
    with JudgementJournal.snapshot(path) as reading:
        assert reading.size() == 21
    with JudgementJournal(path) as journal:
        assert journal.size() == 21
        assert journal.account("one").answers == 21


def test_one_process_writes_others_read(tmp_path):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        settle(journal, [1])
        with pytest.raises(JournalError, match="Another process is writing judgements"):
            JudgementJournal(path)
        with JudgementJournal.snapshot(path) as reading:
            assert reading.size() == 1
    with JudgementJournal.snapshot(tmp_path / "none.sqlite") as empty:
        assert empty.size() == 0
    assert not (tmp_path / "none.sqlite").exists()


def test_a_grade_that_was_changed_on_the_disk_is_noticed(tmp_path):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        settle(journal, [1, 2])
        settle(journal, [3])
    data = bytearray(path.read_bytes())
    place = data.index(key(2)) + 16
    assert data[place : place + 2] == b"AA"
    data[place] = ord("B")
    path.write_bytes(data)
    for opened in (JudgementJournal, JudgementJournal.snapshot):  # as a database it is whole
        with pytest.raises(JournalError, match="does not agree with its checksum"):
            opened(path)
    assert repair_journal(path).judgements == 1
    with JudgementJournal(path) as journal:
        assert journal.grades([key(n) for n in (1, 2, 3)]) == {key(3): "A"}


def test_an_entry_in_the_row_of_another_number_is_damage_and_a_repair_recovers_it(tmp_path):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        settle(journal, [1, 2])
        settle(journal, [3])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE log SET number = 9 WHERE number = 2")
    for opened in (JudgementJournal, JudgementJournal.snapshot):
        with pytest.raises(JournalError, match="does not agree with its checksum"):
            opened(path)
    assert repair_journal(path).judgements == 3
    with JudgementJournal(path) as journal:
        assert journal.grades([key(n) for n in range(5)]) == {key(n): "A" for n in (1, 2, 3)}


def test_a_build_resumes_after_a_repair(make_input, make_server, endpoint, judges_of, content):
    source, server = make_input(4, 30), endpoint()
    config = judges_of(make_server(server), price_in=1.0)
    path = source.folder / "judgements.sqlite"

    def run(out):
        return judge(*source.paths, source.folder / out, config, already_anonymous=True, show_progress=False)

    run("first")
    spent = JudgementJournal.snapshot(path).account("words").cost
    data = bytearray(path.read_bytes())
    data[16:40] = b"\xff" * 24  # the header of the file
    path.write_bytes(data)
    with pytest.raises(JournalError, match="damaged"):
        run("second")
    assert path.read_bytes() == bytes(data)
    repaired = repair_journal(path)
    report = run("third")
    assert report.judges[0].known == repaired.judgements == source.pairs
    assert content(source.folder / "third") == content(source.folder / "first")
    assert (
        json.loads((source.folder / "first" / "report.json").read_text())["judges"][0]["paid"]["cost"]
        == spent
    )


@pytest.mark.thorough
def test_a_power_cut_costs_only_what_was_not_synced(tmp_path, monkeypatch):
    """All other rows are complete: one for each of the first answers and no others."""
    monkeypatch.setattr("medteb_mteb.curation.llm.database.SYNC_SECONDS", 600)
    path, rng, lost = tmp_path / "journal.sqlite", random.Random(0), set()
    with JudgementJournal(path) as journal:
        for round_ in range(3):
            start = 400 * round_
            for number in range(start, start + 200, 10):
                settle(journal, range(number, number + 10))
            with sqlite3.connect(path) as syncing:
                assert syncing.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
            disk = Disk(path)
            for number in range(start + 200, start + 400, 10):
                settle(journal, range(number, number + 10))
            for case in range(40):
                left = disk.cut(rng, tmp_path / f"{round_}-{case}")
                with JudgementJournal(left) as after:
                    size = after.size()
                    assert start + 200 <= size <= start + 400
                    assert after.grades([key(n) for n in range(start + 400)]) == dict.fromkeys(
                        map(key, range(size)), "A"
                    )
                    assert after.account("one").answers == size // 10
                    lost.add(start + 400 - size)
    assert {0, 200} < lost


def test_a_journal_of_an_earlier_version_is_continued(tmp_path):
    path, again = tmp_path / "journal.sqlite", Request((key(7), key(8)), 1, 3)
    with JudgementJournal(path) as journal:
        settle(journal, range(5), follow=[again])
        settle(journal, [5], failures={key(9): Failure("refused", 1)})
    assert as_version_1(path) == (6, 1)
    with JudgementJournal.snapshot(path) as reading:
        assert reading.size() == 6
        assert reading.requests(SETTINGS) == [again]
        assert reading.grades([key(n) for n in range(9)]) == {key(n): "A" for n in range(6)}
    for _ in range(2):
        with JudgementJournal(path) as journal:
            assert journal.requests(SETTINGS) == [again]
            assert journal.failures([key(9)]) == {key(9): Failure("refused", 1)}
            settle(journal, [4, 6], grade="D")  # the grade of 4 is never changed
            grades = journal.grades([key(n) for n in range(9)])
            assert grades == {key(n): "A" for n in range(6)} | {key(6): "D"}
            assert journal.size() == 7
    assert repair_journal(path).judgements == 7
    with JudgementJournal(path) as journal:
        assert journal.requests(SETTINGS) == [again]


def test_a_row_of_an_earlier_version_that_was_changed_is_noticed(tmp_path):
    path = tmp_path / "journal.sqlite"
    with JudgementJournal(path) as journal:
        settle(journal, [1, 2])
    assert as_version_1(path) == (2, 0)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE judgements SET grade = 'B' WHERE key = ?", (key(2),))
    for opened in (JudgementJournal.snapshot, JudgementJournal):
        with opened(path) as journal:
            assert journal.grades([key(1)]) == {key(1): "A"}
            with pytest.raises(JournalError, match="does not agree with its checksum"):
                journal.grades([key(1), key(2)])


@pytest.mark.thorough
def test_an_answer_writes_a_few_pages(tmp_path, monkeypatch):
    """For any digests of its judgements; a tree ordered by digest would change a page for each grade."""
    monkeypatch.setattr("medteb_mteb.curation.llm.database.SYNC_SECONDS", 600)
    path = tmp_path / "journal.sqlite"
    filled(path, 20_000)
    with JudgementJournal(path) as journal:
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        request = [Request(tuple(key(n) for n in range(at, at + 10))) for at in range(20_000, 20_320, 10)]
        journal.decide(SETTINGS, request)
        log = path.with_name("journal.sqlite-wal")
        before = log.stat().st_size
        for one in request:
            paid = JudgeAccount(1, 100, 10, 0.5, 0, 1, 0)
            journal.settle(
                SETTINGS,
                one,
                judge="one",
                grades=dict.fromkeys(one.keys, "B"),
                failures={},
                follow=(),
                paid=paid,
            )
        assert (log.stat().st_size - before) / len(request) < 4 * 1100
    with JudgementJournal(path) as journal:
        assert journal.size() == 20_320


def test_grades_are_found_among_keys_that_begin_alike(tmp_path, monkeypatch):
    monkeypatch.setattr("medteb_mteb.curation.judge.index.MAX_RECENT", 16)
    path = tmp_path / "journal.sqlite"
    keys = [b"same-beg" + bytes((number,)) * 8 for number in range(40)]
    with JudgementJournal(path) as journal:
        for number, one in enumerate(keys[:30]):
            grades = {one: "SABCD"[number % 5]}
            request = Request((one,))
            journal.settle(
                SETTINGS, request, judge="one", grades=grades, failures={}, follow=(), paid=JudgeAccount()
            )
    expected = {one: "SABCD"[number % 5] for number, one in enumerate(keys[:30])}
    for opened in (JudgementJournal, JudgementJournal.snapshot):
        with opened(path) as journal:
            assert journal.grades(keys) == expected
            assert journal.size() == 30
