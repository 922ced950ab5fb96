"""`medteb verify`: what it prints about journals of answers."""

from __future__ import annotations

import json
import re
import sqlite3

import pytest

from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal

KEYS = [bytes([number]) * 16 for number in range(3)]


@pytest.fixture
def journal(work):
    """A journal of three answers in the working folder."""

    def make(name, *, damaged=False):
        with AnswerJournal(work / name) as answers:
            for number, key in enumerate(KEYS):
                answer = Answer(0, "", f"答案{number}")
                answers.add(
                    settings_digest({"model": "m"}), key, answer, llm="one", paid=Account(1, 1, 1, 0.5)
                )
        if damaged:
            with sqlite3.connect(work / name) as db:
                db.execute("UPDATE answers SET answer = 'B' WHERE key = ?", (KEYS[1],))
        return work / name

    return make


def test_a_whole_journal_is_one_line_and_its_notes(medteb, journal):
    size = journal("answers.sqlite").stat().st_size
    assert medteb("verify", "answers.sqlite") == (
        0,
        f"answers.sqlite: journal of answers, {size / 1e6:.1f} MB, whole\n  note: 3 answers\n",
        "",
    )


def test_damage_is_an_exit_code_until_it_is_repaired(medteb, journal, work):
    journal("answers.sqlite", damaged=True)
    code, out, err = medteb("verify", "answers.sqlite")
    assert (code, err) == (1, "")
    first, found, advice, *_ = out.splitlines()
    assert first.endswith(", 1 damaged")
    assert found == f"  the row of key {KEYS[1].hex()} was changed"
    assert "'medteb verify --repair'" in advice
    code, out, err = medteb("verify", "answers.sqlite", "--repair")
    assert code == 0
    assert re.match(r"[23] answers kept; the damaged journal is ", err), err
    assert out.splitlines()[0].endswith(", whole")
    assert medteb("verify", "answers.sqlite")[:2] == (0, out)


def test_a_repair_leaves_whole_journals_alone(medteb, journal):
    path = journal("answers.sqlite")
    before = path.read_bytes()
    code, _, err = medteb("verify", path, "--repair")
    assert (code, err) == (0, "")
    assert path.read_bytes() == before
    assert sorted(one.name for one in path.parent.glob("*damaged*")) == []


def test_one_journal_is_an_object_and_several_are_a_list(medteb, journal):
    journal("a.sqlite")
    journal("b.sqlite", damaged=True)
    one = json.loads(medteb("verify", "a.sqlite", "--json")[1])
    code, out, _ = medteb("verify", "a.sqlite", "b.sqlite", "--json")
    assert code == 1
    first, second = json.loads(out)
    assert first == one
    assert (first["whole"], second["whole"]) == (True, False)


def test_a_missing_journal_is_refused_before_anything_is_repaired(refused, journal):
    path = journal("a.sqlite", damaged=True)
    before = path.read_bytes()
    assert "There is no journal at gone.sqlite" in refused("verify", "a.sqlite", "gone.sqlite", "--repair")
    assert path.read_bytes() == before
