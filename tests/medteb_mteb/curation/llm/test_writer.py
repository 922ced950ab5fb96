"""A writer stores every answer before it is read, and asks once more for an unusable one."""

from __future__ import annotations

import asyncio

import pytest

from medteb_mteb.curation.llm import LLM, Account, Prompt, Rejected
from medteb_mteb.curation.llm.client import Unanswered
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import UNREAD, Answer, AnswerJournal
from medteb_mteb.curation.llm.messages import Reply
from medteb_mteb.curation.llm.origins import Origin, origin_today
from medteb_mteb.curation.llm.readings import Readings, by_answer
from medteb_mteb.curation.llm.writer import Writer

SETTINGS = settings_digest({"model": "m"})
PROMPTS = [Prompt(name, "系统", name, {}, 5) for name in ("p0", "p1", "p2")]


def read(prompt, text):
    if not text.startswith("good"):
        raise Rejected("not-good")
    return text


def reply(content, *, refused=False, cut=False, estimated=False):
    return Reply(content, refused, cut, 100, 10, estimated, "qwen3", "fp")


@pytest.fixture
def journal(tmp_path):
    with AnswerJournal(tmp_path / "answers.sqlite") as opened:
        yield opened


@pytest.fixture
def make(journal):
    """Makes a writer that has three prompts to send; `done` are its reports of progress."""

    def writer(read=read, **settings):
        readings = Readings(by_answer(PROMPTS, SETTINGS), read)
        entry = {"name": "one", "model": "m", "base_url": "http://127.0.0.1:9/v1", "concurrency": 2}
        llm = LLM.model_validate(entry | {"price_in": 1e4, "price_out": 1e5} | settings)
        orders, done = list(readings.orders(journal, retry_failed=False)), []
        made = Writer(readings, orders, llm, journal, SETTINGS, {}, lambda *counts: done.append(counts))
        return made, orders, done

    return writer


def test_a_usable_answer_is_stored_with_its_origin_and_cost(make, journal):
    writer, (order, *_), done = make()
    assert writer.settle(order, reply("good", estimated=True), "") == []
    assert writer.readings.good == {"p0": "good"}
    assert journal.answers([order.key]) == {order.key: [Answer(0, "", "good")]}
    assert journal.failures([order.key]) == {}
    assert journal.account("one") == Account(1, 100, 10, 2.0, 1)
    assert journal.origins([order.key]) == {order.key: Origin("qwen3", "fp", origin_today().date)}
    assert (writer.bought, [failed for _, failed in done]) == (1, [0])


def test_an_unusable_answer_is_asked_for_once_more_and_has_failed_then(make, journal):
    writer, (order, *_), done = make()
    (again,) = writer.settle(order, reply("bad"), "")
    assert (again.key, again.words, again.attempt) == (order.key, order.words, 1)
    assert (done, writer.readings.failed) == ([], {})
    assert journal.failures([order.key]) == {order.key: Failure(UNREAD, 0)}
    assert writer.settle(again, reply("worse"), "") == []
    assert journal.failures([order.key]) == {order.key: Failure("not-good", 1)}
    assert [answer.text for answer in journal.answers([order.key])[order.key]] == ["bad", "worse"]
    assert (writer.bought, writer.readings.failed, len(done)) == (2, {"p0": "not-good"}, 1)


def test_a_prompt_without_an_answer_fails_at_once_and_costs_nothing(make, journal):
    writer, (order, *_), done = make()
    assert writer.settle(order, None, "filtered") == []
    assert journal.failures([order.key]) == {order.key: Failure("filtered", 0)}
    assert (journal.size(), journal.account("one"), writer.bought) == (0, Account(), 0)
    assert [failed for _, failed in done] == [1]


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        (reply(None), Answer(0, "", ""), "empty"),
        (reply("\u3000\n"), Answer(0, "", "\u3000\n"), "empty"),
        (reply("goo", cut=True), Answer(0, "cut", "goo"), "cut"),
        (reply("good", refused=True), Answer(0, "refused", "good"), "refused"),
        (reply("bad \ud800 \0 🩺"), Answer(0, "", "bad ? \0 🩺"), "not-good"),
    ],
)
def test_answers_of_any_form_are_stored_and_counted_as_unusable(make, journal, given, answer, reason):
    writer, (order, *_), _ = make(unreadable=1)
    assert len(writer.settle(order, given, "")) == 1
    assert journal.answers([order.key]) == {order.key: [answer]}
    assert writer.stop.reason.endswith(f"the last one: {reason}")


def test_an_answer_is_stored_before_a_reader_that_breaks(make, journal):
    def broken(prompt, text):
        raise ZeroDivisionError

    writer, (order, *_), _ = make(broken)
    with pytest.raises(ZeroDivisionError):
        writer.settle(order, reply("good"), "")
    assert journal.answers([order.key]) == {order.key: [Answer(0, "", "good")]}
    _, orders, _ = make()  # the next run reads it
    assert len(orders) == 2


def test_the_last_report_has_the_whole_cost_and_all_failures(make, journal, scripted):
    def answer(order):
        if order.words.key == "p1":
            raise Unanswered("status-400")
        return reply("good" if order.words.key == "p0" else "bad")

    endpoint = scripted(answer)
    writer, _, done = make()
    asyncio.run(writer.run())
    assert len(endpoint.asked) == 4  # the bad one twice
    assert writer.readings.failed == {"p1": "status-400", "p2": "not-good"}
    assert len(done) == 3
    assert done[-1] == (journal.account("one").cost, 2) == (6.0, 2)
