"""The account of an LLM: amounts of many answers, summed field by field."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, fields

import pytest

from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal

SETTINGS = settings_digest({"model": "m"})


def test_every_field_is_summed_over_answers_and_runs(tmp_path):
    paid = [Account(1, 200, 30, 0.5, 0), Account(1, 1000, 7, 0.25, 1), Account(1, 4, 5, 8.0, 1)]
    for run, booked in enumerate((paid[:2], paid[2:])):
        with AnswerJournal(tmp_path / "answers.sqlite") as journal:
            for number, one in enumerate(booked):
                key = bytes([run, number]) * 8
                journal.add(SETTINGS, key, Answer(0, "", "好"), llm="one", paid=one)
            journal.add(SETTINGS, bytes([run, 9]) * 8, Answer(0, "", "好"), llm="other", paid=Account(1))
    with AnswerJournal.snapshot(tmp_path / "answers.sqlite") as journal:
        assert astuple(journal.account("one")) == tuple(map(sum, zip(*map(astuple, paid), strict=True)))
        assert journal.account("other") == Account(2)


@pytest.mark.parametrize(("journal", "account"), [(AnswerJournal, Account), (JudgementJournal, JudgeAccount)])
def test_a_journal_has_a_column_for_every_field_in_the_same_order(tmp_path, journal, account):
    journal(tmp_path / "journal.sqlite").close()
    db = sqlite3.connect(tmp_path / "journal.sqlite")
    columns = [row[1] for row in db.execute("PRAGMA table_info(accounts)")]
    db.close()
    assert columns == [journal.holder, *(field.name for field in fields(account))]
