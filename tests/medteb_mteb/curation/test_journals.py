"""`medteb verify`: journals that are whole, torn and changed."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

from medteb_mteb.cli import app
from medteb_mteb.curation.diversify.journal import DecisionJournal
from medteb_mteb.curation.judge.entries import JudgeAccount, Request
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal

SETTINGS = settings_digest({"model": "m"})
KEYS = [bytes([number]) * 16 for number in range(40)]


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerJournal(path) as journal:
        for number, key in enumerate(KEYS):
            answer = Answer(0, "", f"答案{number} " + "脉" * 200)
            journal.add(SETTINGS, key, answer, llm="one", paid=Account(1, 1, 1, 0.5, 0))
    return path


@pytest.fixture
def judgements(tmp_path):
    path = tmp_path / "judgements.sqlite"
    with JudgementJournal(path) as journal:
        journal.settle(
            SETTINGS,
            Request(tuple(KEYS), 0, False),
            judge="one",
            grades=dict.fromkeys(KEYS, "A"),
            failures={},
            follow=(),
            paid=JudgeAccount(),
        )
    return path


def run(arguments):
    """Exit status of the command, and its JSON or its error."""
    done = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, json.loads(done.stdout)


def test_undamaged_journals_are_reported_as_whole(answers, judgements):
    status, reports = run([answers, judgements])
    assert status == 0
    assert [one["kind"] for one in reports] == ["journal of answers", "journal of judgements"]
    assert [one["notes"] for one in reports] == [["40 answers"], ["40 judgements"]]


@pytest.mark.parametrize("which", ["answers", "judgements"])
def test_a_changed_row_is_named_and_the_others_are_kept(which, request):
    path = request.getfixturevalue(which)
    with sqlite3.connect(path) as db:
        if which == "answers":
            row = f"key {KEYS[7].hex()}"
            db.execute("UPDATE answers SET answer = 'B' WHERE key = ?", (KEYS[7],))
        else:
            row = "request 1"
            (entry,) = db.execute("SELECT entry FROM log WHERE number = 1").fetchone()
            db.execute("UPDATE log SET entry = ?", (entry.replace(b"A" * len(KEYS), b"A" * 39 + b"B"),))
    status, report = run([path])
    assert status == 1
    assert [problem["found"] for problem in report["problems"]] == [f"the row of {row} was changed"]
    before = path.read_bytes()
    status, report = run([path, "--repair"])
    assert status == 0
    # The row before the change may still be there.
    assert report["notes"] in ([f"39 {which}"], [f"40 {which}"])
    assert (path.parent / f"{path.name}.damaged-1").read_bytes() == before


@pytest.mark.parametrize("damage", ["torn", "zeroed"])
def test_a_damaged_file_says_where(answers, damage):
    content = bytearray(answers.read_bytes())
    if damage == "torn":
        content = content[:-1000]
    else:
        content[3 * 4096 : 4 * 4096] = bytes(4096)
    answers.write_bytes(content)
    status, report = run([answers])
    assert status == 1
    assert any(word in report["problems"][0]["found"] for word in ("torn", "page", "malformed"))
    status, report = run([answers, "--repair"])
    assert status == 0
    assert int(report["notes"][0].split()[0]) >= 20


def test_torn_decisions_are_reported_and_repaired(tmp_path):
    path = tmp_path / "decisions"
    vectors = np.eye(8, dtype=np.float32)
    DecisionJournal(path, vectors, {"threshold": 0.8}).write(np.array([True, False, True]))
    assert run([path])[0] == 0
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5))
    status, report = run([path])
    assert (status, report["problems"][0]["found"]) == (1, f"byte {size} is not a decision (decision 3 of 8)")
    assert run([path, "--repair"])[0] == 0
    assert DecisionJournal(path, vectors, {"threshold": 0.8}).read().tolist() == [True, False, True]


def test_files_other_than_journals_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("CREATE TABLE t (x)")
    (tmp_path / "text").write_text("hello")
    for name, message in (
        ("other.sqlite", "another application"),
        ("text", "is not a journal"),
        ("absent", "no journal at"),
    ):
        status, error = run([tmp_path / name])
        assert status != 0
        assert message in error


def test_a_table_name_that_is_not_text_is_reported_as_a_problem(judgements):
    content = judgements.read_bytes()
    assert b"TABLE accounts" in content
    judgements.write_bytes(content.replace(b"TABLE accounts", b"TABLE \x80ccounts"))
    status, report = run([judgements])
    assert status == 1, report
    CliRunner().invoke(app, ["verify", str(judgements), "--repair"], catch_exceptions=False)
    status, report = run([judgements])
    assert status == 0, report


def test_a_changed_version_does_not_hide_judgements(judgements):
    with sqlite3.connect(judgements) as db:
        db.execute("PRAGMA user_version=1")
    status, report = run([judgements])
    assert (status, report["notes"]) == (1, ["40 judgements"])
    assert report["problems"][0]["found"] == "its form is given as 1, but its table log is of form 2"
    status, report = run([judgements, "--repair"])
    assert (status, report["notes"]) == (0, ["40 judgements"])


def test_an_unknown_version_is_refused(answers):
    with sqlite3.connect(answers) as db:
        db.execute("PRAGMA user_version=9")
    status, error = run([answers])
    assert status != 0
    assert "written by another version of medteb (form 9, expected 1)" in error


@pytest.mark.parametrize("size", [0, 5, 50, 99])
def test_a_journal_that_was_cut_within_its_header_is_named_as_such(answers, size):
    answers.write_bytes(answers.read_bytes()[:size])
    status, error = run([answers])
    assert status != 0
    assert f"answers.sqlite was cut to {size} bytes" in error
    assert "delete it and run its command again" in error


def test_a_journal_of_decisions_that_was_cut_in_its_first_line_is_damaged(tmp_path):
    path = tmp_path / "decisions"
    path.write_bytes(b'{"vect')
    status, report = run([path])
    assert (status, report["problems"][0]["found"]) == (1, "its first line is damaged")
