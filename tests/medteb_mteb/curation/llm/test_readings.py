"""Answers of the journal as parsed, and the requests that remain."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.llm import Account, Prompt, Rejected
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal, answer_key
from medteb_mteb.curation.llm.readings import AnswerRequest, Readings, by_answer

SETTINGS = settings_digest({"model": "m"})


def prompt(name="p", user="问", variant=""):
    return Prompt(name, "系统", user, {"type": "object"}, 5, variant)


KEY = answer_key(SETTINGS, prompt())


def read(prompt, text):
    """Accept answers that begin with `good`."""
    if not text.startswith("good"):
        raise Rejected(f"not-good-{text}")
    return f"{prompt.key}: {text}"


@pytest.fixture
def journal(tmp_path):
    with AnswerJournal(tmp_path / "answers.sqlite") as opened:
        yield opened


def add(journal, *answers, key=KEY):
    for answer in answers:
        journal.add(SETTINGS, key, answer, llm="one", paid=Account(1))


def state(journal, *, retry_failed=False, prompts=None):
    """What a run finds: numbers of the attempts to make, good answers and failures."""
    readings = Readings(by_answer(prompts or [prompt()], SETTINGS), read)
    orders = list(readings.orders(journal, retry_failed=retry_failed))
    return [order.attempt for order in orders], readings.good, readings.failed


BAD, AGAIN, GOOD = Answer(0, "", "a"), Answer(1, "", "b"), Answer(1, "", "good")


@pytest.mark.parametrize(
    ("answers", "failure", "expected", "retried"),
    [
        ((), None, ([0], {}, {}), [0]),
        ((), Failure("status-400", 0), ([], {}, {"p": "status-400"}), [0]),
        ((BAD,), "not read yet", ([1], {}, {}), [1]),
        ((BAD,), Failure("status-500", 1), ([], {}, {"p": "status-500"}), [1]),
        ((BAD, AGAIN), "not read yet", ([], {}, {"p": "not-good-b"}), [2]),
        ((BAD, AGAIN), Failure("not-good-b", 1), ([], {}, {"p": "not-good-b"}), [2]),
        ((BAD, AGAIN), Failure("status-500", 2), ([], {}, {"p": "status-500"}), [2]),
        ((BAD, GOOD), "not read yet", ([], {"p": "p: good"}, {}), []),
        ((BAD, GOOD), None, ([], {"p": "p: good"}, {}), []),
        # An answer that another reader accepted before.
        ((BAD,), None, ([], {}, {"p": "not-good-a"}), [1]),
        # A reader that accepts what another one rejected before.
        ((BAD, GOOD), Failure("no-json", 1), ([], {"p": "p: good"}, {}), []),
    ],
)
def test_what_is_sent_after_what_is_known(journal, answers, failure, expected, retried):
    add(journal, *answers)
    if isinstance(failure, Failure):
        journal.fail(KEY, failure)
    elif failure is None:
        journal.accept([KEY])
    assert state(journal) == expected
    # Parsing is recorded: the next run finds the same, and only a retry asks again.
    assert state(journal) == expected
    assert state(journal, retry_failed=True)[0] == retried


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(0, "refused", "good"), "refused"),
        (Answer(0, "cut", "goo"), "cut"),
        (Answer(0, "cut", ""), "cut"),
        (Answer(0, "", " \u3000\n"), "empty"),
        (Answer(0, "", "x"), "not-good-x"),
        (Answer(0, "cut", "</think>good enough"), ""),
    ],
)
def test_the_reason_of_a_failure_is_how_the_answer_ended(answer, reason):
    readings = Readings(by_answer([prompt()], SETTINGS), read)
    assert readings.take(KEY, answer) == reason
    assert readings.good == ({} if reason else {"p": "p: good enough"})


@pytest.mark.parametrize(
    "text",
    ["<think>good draft", "<think>good draft</think>", "good draft</think>", "<think>one</think><think>good"],
)
def test_a_draft_in_thoughts_that_were_cut_off_is_no_answer(text):
    readings = Readings(by_answer([prompt()], SETTINGS), lambda _, read_text: read_text)
    assert readings.take(KEY, Answer(0, "cut", text)) == "cut"
    assert readings.good == {}


def test_an_answer_that_is_complete_before_its_end_was_cut_off_is_read():
    readings = Readings(by_answer([prompt()], SETTINGS), read)
    assert readings.take(KEY, Answer(0, "cut", "<think>one</think>good, becau")) == ""
    assert readings.good == {"p": "p: good, becau"}


def test_prompts_of_the_same_text_share_an_answer_which_each_may_reject():
    def choosy(prompt, text):
        if prompt.key == "b":
            raise Rejected("not-mine")
        return text

    prompts = [prompt("a"), prompt("b"), prompt("c", variant="1"), prompt("d", user="另")]
    grouped = by_answer(prompts, SETTINGS)
    assert [[one.key for one in group] for group in grouped.values()] == [["a", "b"], ["c"], ["d"]]
    readings = Readings(grouped, choosy)
    assert readings.take(KEY, Answer(0, "", "one")) == "not-mine"
    assert readings.take(KEY, Answer(1, "", "two")) == "not-mine"
    readings.fail(KEY, "not-mine")
    assert (readings.good, readings.failed) == ({"a": "one"}, {"b": "not-mine"})


def test_a_repeated_key_is_refused():
    with pytest.raises(ValueError, match="two prompts have the key 'a'"):
        by_answer([prompt("a"), prompt("a", user="另")], SETTINGS)


def test_requests_for_equal_words_are_told_apart_by_variant_and_attempt():
    requests = [
        AnswerRequest(answer_key(SETTINGS, one), one, attempt)
        for one in (prompt(), prompt(variant="1"))
        for attempt in (0, 1)
    ]
    assert len({request.salt() for request in requests}) == 4
    assert {str(request.messages()) for request in requests} == {
        "[{'role': 'system', 'content': '系统'}, {'role': 'user', 'content': '问'}]"
    }
    requests[0].schema()["type"] = "changed by a client"
    assert requests[0].schema() == {"type": "object"}
