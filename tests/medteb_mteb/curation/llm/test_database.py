"""The base of all journals: files that are refused, writes of all rows or none, and digests of settings."""

from __future__ import annotations

import datetime as dt
import sqlite3

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm import Account, JournalError
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal

SETTINGS = settings_digest({"model": "m"})
KINDS = pytest.mark.parametrize("kind", [AnswerJournal, JudgementJournal])


def key(number):
    return number.to_bytes(16, "big")


def test_the_order_of_settings_does_not_matter_and_every_value_does():
    given = {"model": "m", "temperature": 0.5, "extra": {"top_p": 0.9, "seed": 1}}
    turned = {"extra": {"seed": 1, "top_p": 0.9}, "temperature": 0.5, "model": "m"}
    assert settings_digest(given) == settings_digest(turned)
    others = [{"model": "n"}, {"temperature": None}, {"extra": {"top_p": 0.9}}, {"extra": {"top_p": 1}}]
    assert len({settings_digest(given | other) for other in [{}, *others]}) == 5


@pytest.mark.parametrize("value", [dt.date(2024, 1, 1), {"a"}, b"a", "\ud800"])
def test_a_setting_that_is_not_json_is_refused(value):
    with pytest.raises(BuildError, match=r"must be JSON values in UTF-8 \(.*put dates in quotes"):
        settings_digest({"model": "m", "extra": {"since": value}})


@KINDS
def test_a_journal_whose_creation_was_killed_is_new(tmp_path, kind):
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
    db.close()
    assert path.stat().st_size
    with kind.snapshot(path) as reading:
        assert reading.size() == 0
    with kind(path) as journal:
        journal.describe(SETTINGS, {"model": "m"})
    with kind(path) as journal:
        assert journal.size() == 0


@KINDS
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (x)",
        "PRAGMA application_id = 7",
        "CREATE TABLE answers (key BLOB); PRAGMA user_version = 1",
    ],
)
def test_a_database_of_another_application_is_refused_and_left_as_it_is(tmp_path, kind, statement):
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(statement)
    db.close()
    before = path.read_bytes()
    for opening in (kind, kind.snapshot):
        with pytest.raises(JournalError, match="is a database of another application"):
            opening(path)
    assert path.read_bytes() == before


@KINDS
def test_a_file_that_is_no_database_or_of_another_version_is_refused_but_not_locked(tmp_path, kind):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    for opening in (kind, kind.snapshot):
        with pytest.raises(JournalError, match="is damaged"):
            opening(path)
    assert path.read_bytes() == b"no database at all" * 1000
    path.unlink()
    kind(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 9")
    later.close()
    with pytest.raises(JournalError, match="another version of medteb"):
        kind(path)
    path.unlink()
    with kind(path) as journal:
        assert journal.size() == 0


def test_journals_of_answers_and_of_judgements_are_not_mixed_up(tmp_path):
    AnswerJournal(tmp_path / "answers.sqlite").close()
    JudgementJournal(tmp_path / "judgements.sqlite").close()
    with pytest.raises(JournalError, match="is a database of another application"):
        JudgementJournal(tmp_path / "answers.sqlite")
    with pytest.raises(JournalError, match="is a database of another application"):
        AnswerJournal(tmp_path / "judgements.sqlite")


def test_a_place_that_cannot_hold_a_journal_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"file/answers\.sqlite cannot be written to .*another journal"):
        AnswerJournal(tmp_path / "file" / "answers.sqlite")
    with pytest.raises(JournalError, match="cannot be used"):
        AnswerJournal(tmp_path)


@pytest.mark.parametrize("name", ["50%20 off?mode=rw#1 答案.sqlite", 'it\'s "quoted".sqlite'])
def test_any_file_name_can_be_written_and_read(tmp_path, name):
    with AnswerJournal(tmp_path / name) as journal:
        journal.fail(key(1), Failure("refused", 0))
        with AnswerJournal.snapshot(tmp_path / name) as reading:
            assert reading.failures([key(1)]) == {key(1): Failure("refused", 0)}
    assert sorted(file.name for file in tmp_path.iterdir()) == [name, f"{name}.lock"]


def test_any_number_of_keys_is_looked_up_at_once(tmp_path):
    keys = [key(number) for number in range(1234)]
    with AnswerJournal(tmp_path / "answers.sqlite") as journal:
        journal.insert("failures", [(one, "refused", i) for i, one in enumerate(keys[::2])])
        assert journal.failures(keys) == {one: Failure("refused", i) for i, one in enumerate(keys[::2])}
        assert journal.failures([]) == {}


def test_rows_are_inserted_all_or_none_and_never_replaced(tmp_path):
    with AnswerJournal(tmp_path / "answers.sqlite") as journal:
        journal.insert("failures", [(key(1), "refused", 0)])
        with pytest.raises(JournalError, match="cannot be used"):
            journal.insert("failures", [(key(2), "cut", 0), (key(3), "cut")])
        journal.insert("failures", [(key(1), "cut", 5), (key(4), "cut", 1)])
        stored = {key(1): Failure("refused", 0), key(4): Failure("cut", 1)}
        assert journal.failures([key(number) for number in range(5)]) == stored


@pytest.mark.parametrize("name", ["o'ne; DROP TABLE accounts", "模型\n🩺"])
def test_an_account_adds_up_every_payment_over_all_runs(tmp_path, name):
    for attempt in range(2):
        with AnswerJournal(tmp_path / "answers.sqlite") as journal:
            answer, paid = Answer(attempt, "", "好"), Account(1, 20, 3, 0.25, attempt)
            journal.add(SETTINGS, key(1), answer, llm=name, paid=paid)
            journal.add(SETTINGS, key(1), answer, llm="other", paid=Account(1))
            assert journal.account("none") == Account()
    with AnswerJournal.snapshot(tmp_path / "answers.sqlite") as reading:
        assert reading.account(name) == Account(2, 40, 6, 0.5, 1)
