"""Repair of a damaged journal before a step resumes."""

from __future__ import annotations

import pytest

from medteb_mteb.commands.repairing import repair_answers, repair_judgements
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.entries import JudgeAccount, Request
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal

SETTINGS = settings_digest({"model": "m"})
KEYS = [bytes([number]) * 16 for number in range(5)]


def write_answers(path):
    with AnswerJournal(path) as journal:
        for number, key in enumerate(KEYS):
            journal.add(SETTINGS, key, Answer(0, "", f"答案{number}"), llm="one", paid=Account(1, 1, 1, 0.5))


def write_judgements(path):
    with JudgementJournal(path) as journal:
        grades = dict.fromkeys(KEYS, "A")
        request = Request(tuple(KEYS), 0, False)
        journal.settle(
            SETTINGS, request, judge="one", grades=grades, failures={}, follow=(), paid=JudgeAccount()
        )


KINDS = {
    "answers": (repair_answers, write_answers, "MEDTEB_ANSWERS", "answers.sqlite"),
    "judgements": (repair_judgements, write_judgements, "MEDTEB_JOURNAL", "judgements.sqlite"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["beside", "given", "named"])
def test_a_damaged_journal_is_moved_aside_and_what_it_holds_is_kept(kind, place, work, monkeypatch, capsys):
    repair, write_journal, variable, name = KINDS[kind]
    path = work / name if place == "beside" else work / "mine.sqlite"
    write_journal(path)
    damaged = path.read_bytes()[:100] + b"\xff" * 200 + path.read_bytes()[300:]
    path.write_bytes(damaged)
    if place == "named":
        monkeypatch.setenv(variable, str(path))
    repair(work / "out", path if place == "given" else None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"5 {kind} ")
    assert err.endswith(f"; the damaged journal is {path}.damaged-1\n")
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == damaged
    opened = {"answers": AnswerJournal, "judgements": JudgementJournal}[kind]
    with opened.snapshot(path) as journal:
        assert journal.size() == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_journal_that_is_not_there_is_refused(kind, work):
    repair, _, _, name = KINDS[kind]
    with pytest.raises(BuildError, match=f"There is no journal at {work / name}"):
        repair(work / "out", None)
    assert list(work.iterdir()) == []
