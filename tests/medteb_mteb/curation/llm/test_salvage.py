"""Answers recovered from a damaged journal: all that are whole, and no others."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from medteb_mteb.curation.llm import Account, repair_answers
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal, answer_key
from medteb_mteb.curation.llm.origins import Origin
from medteb_mteb.curation.llm.readings import Readings, by_answer

SETTINGS = settings_digest({"model": "m"})


def rows_of(path):
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute("SELECT key, attempt, ending, answer FROM answers"))


def write(path, answers):
    with AnswerJournal(path) as journal:
        for number, answer in enumerate(answers):
            key = number.to_bytes(16, "big")
            journal.add(SETTINGS, key, answer, llm="one", paid=Account(1, 2, 3, 0.5))
    return rows_of(path)


def damage(path, places):
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("attempt", "ending"),
    [(0, ""), (1, "cut"), (2, "refused"), (127, ""), (128, "cut"), (32_767, "refused")],
)
def test_every_form_of_an_answer_is_recovered_from_a_file_without_header(tmp_path, attempt, ending):
    path = tmp_path / "answers.sqlite"
    texts = ("", "a", "好🩺", "nul \0 and \x08,\x1c\x09\x0d\x0d\x14", "长" * 25, "长" * 3000, "x" * 70_000)
    rows = write(path, [Answer(attempt, ending, text) for text in texts])
    damage(path, range(100))
    assert repair_answers(path).answers == len(rows) == len(texts)
    assert rows_of(path) == rows


def test_whatever_bytes_are_damaged_only_whole_answers_are_recovered(tmp_path):
    path, draw, lost = tmp_path / "answers.sqlite", random.Random(0), set()
    rows = write(path, [Answer(0, "", f"答{number}" * (number * 5)) for number in range(60)])
    whole = path.read_bytes()
    for _ in range(6):
        path.write_bytes(whole[: draw.randrange(len(whole) // 2, len(whole))])
        damage(path, draw.sample(range(path.stat().st_size), 30))
        repaired = repair_answers(path)
        recovered = rows_of(path)
        assert set(recovered) <= set(rows)
        assert len(recovered) == repaired.answers
        lost.add(len(rows) - len(recovered))
    assert 0 < min(lost) < max(lost) < len(rows)


def test_a_file_that_is_no_database_gives_an_empty_journal_and_is_kept(tmp_path):
    path = tmp_path / "answers.sqlite"
    for content in (b"", b"\0" * 5000, b"\x07,\x1c\x09\x0d\xff\xff\xff\x7f\x14" * 100):
        path.write_bytes(content)
        repaired = repair_answers(path)
        assert (repaired.answers, repaired.accounts, rows_of(path)) == (0, 0, [])
        assert repaired.moved.read_bytes() == content


def test_lost_answers_are_bought_again_and_only_the_kept_one_has_its_day(tmp_path, prompts):
    path, asked, origin = tmp_path / "answers.sqlite", prompts(5), Origin("before", "", "2020-01-02")
    keys = [answer_key(SETTINGS, prompt) for prompt in asked]
    with AnswerJournal(path) as journal:
        for number, key in enumerate(keys[:4]):
            answer = Answer(0, "", f"answer {number}")
            journal.add(SETTINGS, key, answer, llm="one", paid=Account(1), origin=origin)
        journal.accept(keys[:1])
        journal.fail(keys[2], Failure("no-json", 1))
        journal.fail(keys[4], Failure("status-400", 0))
    content = path.read_bytes()
    damage(path, [content.index(f"answer {number}".encode()) for number in range(3)])
    assert repair_answers(path).answers == 1
    readings = Readings(by_answer(asked, SETTINGS), lambda prompt, text: text)
    with AnswerJournal(path) as journal:
        orders = list(readings.orders(journal, retry_failed=False))
        assert journal.origins(keys) == {keys[3]: origin}
    assert [(order.words.key, order.attempt) for order in orders] == [("p0", 0), ("p1", 0), ("p2", 0)]
    assert (readings.good, readings.failed) == ({"p3": "answer 3"}, {"p4": "status-400"})


def test_accounts_are_taken_over(tmp_path):
    path = tmp_path / "answers.sqlite"
    write(path, [Answer(0, "", "好")] * 3)
    assert repair_answers(path).accounts == 1
    with AnswerJournal(path) as journal:
        assert journal.account("one") == Account(3, 6, 9, 1.5)
