"""Requests in the journal of judgements: decided on, forgotten, settled, restored and read again."""

from __future__ import annotations

import hashlib

import pytest

from medteb_mteb.curation.judge.entries import JudgeAccount, Place, Request
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.log import LogEntry
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.origins import Origin

SETTINGS = settings_digest({"model": "m"})
ONE, TWO, THREE = KEYS = [hashlib.sha256(b"%d" % number).digest()[:16] for number in range(3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def settle(journal, request, grades, **options):
    outcome = {"failures": {}, "follow": (), "paid": JudgeAccount(1)} | options
    journal.settle(SETTINGS, request, judge="one", grades=grades, **outcome)


def test_a_request_that_is_decided_on_twice_is_stored_once(path):
    request = Request((ONE, TWO))
    with JudgementJournal(path) as journal:
        journal.decide(SETTINGS, [request])
        journal.decide(SETTINGS, [request, request])
        assert journal.requests(SETTINGS) == [request]
        settle(journal, request, {ONE: "A", TWO: "B"})
    with JudgementJournal(path) as journal:
        assert journal.requests(SETTINGS) == []
        assert journal.size() == 2


def test_a_request_that_is_settled_again_keeps_its_grades_and_each_payment(path):
    request = Request((ONE, TWO))
    with JudgementJournal(path) as journal:
        journal.decide(SETTINGS, [request])
        settle(journal, request, {ONE: "A"})
        settle(journal, request, {ONE: "D", TWO: "B"})
        settle(journal, request, {ONE: "C", TWO: "C"})
    for opened in (JudgementJournal, JudgementJournal.snapshot):
        with opened(path) as journal:
            assert journal.grades(KEYS) == {ONE: "A", TWO: "B"}
            assert journal.size() == 2
            assert journal.account("one").answers == 3


def test_answers_may_arrive_in_another_order_than_their_requests(path):
    first, second, third = (Request((key,)) for key in KEYS)
    with JudgementJournal(path) as journal:
        journal.decide(SETTINGS, [first, second])
        settle(journal, second, {TWO: "B"})
        settle(journal, first, {ONE: "A"})
        journal.decide(SETTINGS, [third])
        assert journal.requests(SETTINGS) == [third]
        assert journal.grades(KEYS) == {ONE: "A", TWO: "B"}


def test_a_request_that_is_answered_without_grades_is_not_open_after_reopening(path):
    request = Request((ONE,))
    with JudgementJournal(path) as journal:
        journal.decide(SETTINGS, [request])
        settle(journal, request, {}, failures={ONE: Failure("refused", 1)})
        assert journal.requests(SETTINGS) == []
    with JudgementJournal(path) as journal:
        assert journal.requests(SETTINGS) == []


def test_a_forgotten_request_is_gone_after_reopening_and_can_be_decided_on_again(path):
    first, second = Request((ONE,)), Request((TWO,))
    with JudgementJournal(path) as journal:
        journal.decide(SETTINGS, [first, second])
        journal.forget(SETTINGS, [first, Request((THREE,))])  # the latter was never decided on
        assert journal.requests(SETTINGS) == [second]
    with JudgementJournal(path) as journal:
        assert journal.requests(SETTINGS) == [second]
        journal.forget(SETTINGS, [second])
        journal.decide(SETTINGS, [second])
        assert journal.requests(SETTINGS) == [second]
    with JudgementJournal(path) as journal:
        assert journal.requests(SETTINGS) == [second]


def test_failures_are_known_at_once_and_the_later_of_a_judgement_replaces_the_earlier(path):
    with JudgementJournal(path) as journal:
        settle(journal, Request((ONE,)), {}, failures={ONE: Failure("refused", 0)})
        assert journal.failures(KEYS) == {ONE: Failure("refused", 0)}
        settle(journal, Request((ONE,), 1), {}, failures={ONE: Failure("not-json", 1)})
        assert journal.failures(KEYS) == {ONE: Failure("not-json", 1)}
    with JudgementJournal(path) as journal:
        assert journal.failures(KEYS) == {ONE: Failure("not-json", 1)}


def test_a_failure_that_a_grade_ended_is_not_back_after_reopening(path):
    refused = Failure("refused", 1)
    with JudgementJournal(path) as journal:
        settle(journal, Request((ONE, TWO)), {}, failures={ONE: refused, TWO: refused})
        settle(journal, Request((ONE,), 1), {ONE: "B"})
        assert journal.failures(KEYS) == {TWO: refused}
    with JudgementJournal(path) as journal:
        assert journal.failures(KEYS) == {TWO: refused}


def test_a_restore_adds_only_unknown_grades(path):
    other = Request((ONE, TWO))  # of another journal, under numbers of its own
    with JudgementJournal(path) as journal:
        settle(journal, Request((ONE,)), {ONE: "A"})
        journal.restore(LogEntry(1, SETTINGS, other, True, grades, (0, 0)) for grades in (b"DB", b"CC"))
        assert journal.size() == 2
    for opened in (JudgementJournal, JudgementJournal.snapshot):
        with opened(path) as journal:
            assert journal.grades(KEYS) == {ONE: "A", TWO: "B"}
            assert journal.size() == 2


def test_an_answer_that_is_read_again_is_deleted_and_its_grades_have_its_origin(path):
    first, other = Request((ONE, TWO)), Request((THREE,), 1)
    origin, places = Origin("qwen3", "fp_44", "2026-11-01"), {ONE: Place(2, 3), TWO: Place(1, 3)}
    with JudgementJournal(path) as journal:
        for request in (other, first):
            failures = dict.fromkeys(request.keys, Failure("not-json", 0))
            settle(journal, request, {}, failures=failures, unread=("stop", "很难说"), origin=origin)
        assert journal.unread(SETTINGS) == [(first, "stop", "很难说"), (other, "stop", "很难说")]
        journal.reread(SETTINGS, first, {ONE: "A", TWO: "C"}, places)
    with JudgementJournal(path) as journal:
        assert journal.unread(SETTINGS) == [(other, "stop", "很难说")]
        assert journal.grades(KEYS) == {ONE: "A", TWO: "C"}
        assert journal.places(KEYS) == places
        assert journal.failures(KEYS) == {THREE: Failure("not-json", 0)}
        stored = [*KEYS, first.id(SETTINGS), other.id(SETTINGS)]
        assert journal.origins(stored) == {ONE: origin, TWO: origin, other.id(SETTINGS): origin}
