from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3

import pytest
from tests.medteb_mteb.curation.power_cut import Disk

from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm import Account, JournalError, Prompt, repair_answers
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import UNREAD, Answer, AnswerJournal, answer_key, proof
from medteb_mteb.curation.llm.origins import Origin

SETTINGS = settings_digest({"model": "m"})
PAID = Account(1, 100, 10, 0.5, 0)


def key(number):
    return answer_key(SETTINGS, Prompt("any", "系统", f"{number}", {}, 1))


def text(number):
    """From nothing to several pages, of signs of one, three and four bytes."""
    size = (0, 1, 40, 700, 1300, 1400, 5000, 12_000)[number % 8]
    return "".join(random.Random(number).choices("ab脉压🩺", k=size))


def add(journal, number, attempt=0, ending=""):
    journal.add(SETTINGS, key(number), Answer(attempt, ending, text(number)), llm="one", paid=PAID)


def test_keys_checksums_and_marks_of_the_file_stay_as_written_before(tmp_path):
    """Another value would buy every answer again."""
    assert SETTINGS.hex() == "deea0f7771b9f0a5"
    assert key(1).hex() == "146e69906e99a3e57342fca5ed855488"
    assert proof(key(1), SETTINGS, Answer(0, "cut", "文")).hex() == "c55fc92f"
    for kind, marks in ((AnswerJournal, (0x4D54414E, 1)), (JudgementJournal, (0x4D544A31, 2))):
        path = tmp_path / kind.__name__
        with kind(path):
            pass
        with sqlite3.connect(path) as db:
            pragmas = [
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
        db.close()
        assert tuple(pragmas) == marks


def test_the_next_run_finds_added_answers(tmp_path):
    path = tmp_path / "deep" / "answers.sqlite"
    with AnswerJournal(path) as journal:
        add(journal, 1)
        add(journal, 2, ending="cut")
        add(journal, 2, attempt=1)
        assert journal.failures([key(1), key(2)]) == {key(1): Failure(UNREAD, 0), key(2): Failure(UNREAD, 1)}
        journal.accept([key(1)])
        journal.fail(key(2), Failure("no-json", 1))
    with AnswerJournal(path) as journal:
        assert journal.answers([key(n) for n in range(4)]) == {
            key(1): [Answer(0, "", text(1))],
            key(2): [Answer(0, "cut", text(2)), Answer(1, "", text(2))],
        }
        assert journal.known([key(n) for n in range(4)]) == {key(1), key(2)}
        assert journal.failures([key(1), key(2)]) == {key(2): Failure("no-json", 1)}
        assert journal.account("one") == Account(3, 300, 30, 1.5, 0)
        assert journal.account("two") == Account()
        journal.add(SETTINGS, key(1), Answer(0, "", "又"), llm="one", paid=PAID)  # never changed
        assert journal.answers([key(1)]) == {key(1): [Answer(0, "", text(1))]}
        assert journal.size() == 3
    assert sorted(p.name for p in path.parent.iterdir()) == ["answers.sqlite", "answers.sqlite.lock"]


def test_the_origin_of_the_first_answer_is_kept(tmp_path):
    first, later = Origin("model-1", "f", "2026-01-02"), Origin("model-2", "", "2026-01-03")
    with AnswerJournal(tmp_path / "answers.sqlite") as journal:
        for number, origin in ((1, first), (1, later), (2, later), (3, None)):
            journal.add(SETTINGS, key(number), Answer(0, "", "好"), llm="one", paid=PAID, origin=origin)
        assert journal.origins([key(n) for n in (1, 2, 3)]) == {key(1): first, key(2): later}


def test_keys_tell_answers_apart():
    def of(system, user, variant="", settings=SETTINGS):
        return answer_key(settings, Prompt("any", system, user, {}, 1, variant))

    keys = {of("a", "b"), of("b", "a"), of("ab", ""), of("a", "b", "1"), of("a", "b", settings=b"x" * 8)}
    assert len(keys) == 5
    assert of("a", "\ud800")  # what cannot be encoded has a key, too


def test_an_answer_that_was_changed_on_the_disk_is_noticed(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerJournal(path) as journal:
        for number in (2, 3):
            add(journal, number)
    data, written = path.read_bytes(), text(2).encode()
    assert data.count(written) == 1
    path.write_bytes(data.replace(written, b"x" * len(written)))
    with AnswerJournal(path) as journal:
        assert journal.answers([key(3)])
        with pytest.raises(JournalError, match="does not agree with its checksum"):
            journal.answers([key(2)])
    assert repair_answers(path).answers == 1


def filled(path, count=400):
    with AnswerJournal(path) as journal:
        journal.describe(SETTINGS, {"model": "m"})
        for number in range(count):
            add(journal, number)
            if number % 5 == 0:
                add(journal, number, attempt=1 + number % 200, ending="cut")
            journal.accept([key(number)])
        return journal.size()


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1024, 4096])
@pytest.mark.parametrize("page", [0, 1, 2, 40, "all but data"])
def test_a_damaged_journal_is_unchanged_and_a_repair_saves_whole_rows(tmp_path, monkeypatch, page, size):
    monkeypatch.setattr("medteb_mteb.curation.llm.database.PAGE_SIZES", (size,))
    path = tmp_path / "answers.sqlite"
    answers = filled(path)
    data = bytearray(path.read_bytes())
    draw = random.Random(0)
    if page == "all but data":  # the headers of the file and of every page of a tree, which lead to the rows
        trees = [place for place in range(size, len(data), size) if data[place] in (2, 5, 10, 13)]
        for place in (0, *trees):
            data[place : place + 8] = draw.randbytes(8)
    else:
        data[page * size : (page + 1) * size] = draw.randbytes(size)
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged.*left as it is.*repair_answers"):
        AnswerJournal(path)
    assert path.read_bytes() == bytes(data)
    repaired = repair_answers(path)
    lost = answers - repaired.answers
    assert lost == 0 if page == "all but data" else 0 <= lost <= 40
    assert repaired.moved.read_bytes() == bytes(data)
    with AnswerJournal(path) as journal:
        stored = journal.answers([key(n) for n in range(400)])
        assert sum(map(len, stored.values())) == repaired.answers
        assert all(answer.text == text(n) for n in range(400) for answer in stored.get(key(n), ()))
    assert repair_answers(path).answers == repaired.answers  # and a whole one loses nothing
    assert repair_answers(path).moved != repaired.moved


def _die(path):
    journal = AnswerJournal(path)
    for number in range(60):
        add(journal, number)
    os._exit(9)


def test_a_repair_recovers_rows_in_the_log_too(tmp_path):
    path = tmp_path / "answers.sqlite"
    child = multiprocessing.get_context("fork").Process(target=_die, args=(path,))
    child.start()
    child.join()
    assert path.with_name("answers.sqlite-wal").stat().st_size > 100_000
    with AnswerJournal.snapshot(path) as reading:
        assert reading.size() == 60
    data = bytearray(path.read_bytes())
    data[:100] = b"\0" * 100
    path.write_bytes(data)
    assert repair_answers(path).answers == 60
    with AnswerJournal(path) as journal:
        assert all(journal.answers([key(n)])[key(n)][0].text == text(n) for n in range(60))


def test_a_power_cut_costs_only_what_was_not_synced(tmp_path, monkeypatch):
    monkeypatch.setattr("medteb_mteb.curation.llm.database.SYNC_SECONDS", 600)
    path, rng, left_over = tmp_path / "answers.sqlite", random.Random(0), set()
    with AnswerJournal(path) as journal:
        for number in range(30):
            add(journal, number)
        with sqlite3.connect(path) as syncing:
            assert syncing.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        disk = Disk(path)
        for number in range(30, 60):
            add(journal, number)
        for case in range(60):
            with AnswerJournal(disk.cut(rng, tmp_path / f"{case}")) as after:
                size = after.size()
                stored = after.answers([key(n) for n in range(60)])
                assert {one: [a.text for a in rows] for one, rows in stored.items()} == {
                    key(n): [text(n)] for n in range(size)
                }
                assert after.account("one").answers == size >= 30
                left_over.add(size)
    assert {30, 60} < left_over


def test_the_tables_are_those_of_the_form(tmp_path):
    path = tmp_path / "answers.sqlite"
    AnswerJournal(path).close()
    db = sqlite3.connect(path)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"answers", "failures", "accounts", "settings", "origins", "dated"}
    assert db.execute("PRAGMA page_size").fetchone() == (1024,)
    db.close()
