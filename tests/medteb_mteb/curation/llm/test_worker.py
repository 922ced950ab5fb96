"""Requests to one LLM: their order, number and budget, and what ends a run."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import pytest

from medteb_mteb.curation.llm import LLM, JournalError
from medteb_mteb.curation.llm.client import GiveUp, Unanswered
from medteb_mteb.curation.llm.database import settings_digest
from medteb_mteb.curation.llm.journal import AnswerJournal
from medteb_mteb.curation.llm.messages import Reply
from medteb_mteb.curation.llm.worker import EndpointWorker

SETTINGS = settings_digest({"model": "m"})


@dataclass(frozen=True)
class Job:
    """A prompt of ten tokens, with an answer of at most ten."""

    name: str

    @property
    def prompt(self):
        return self

    def tokens(self):
        return 10, 10


class Worker(EndpointWorker[Job]):
    """Notes outcomes, and sends each of some jobs again, once."""

    def __init__(self, jobs, journal, again=(), **settings) -> None:
        entry = {"name": "one", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
        super().__init__(LLM.model_validate(entry | settings), journal, SETTINGS, {"model": "m"})
        self.waiting, self.again = deque(map(Job, jobs)), again
        self.settled, self.spent, self.finished = [], [], False

    def more(self):
        return [self.waiting.popleft() for _ in range(min(2, len(self.waiting)))]

    def settle(self, job, reply, reason):
        self.settled.append((job.name, reason))
        self.spent.append(self.budget.spent)
        return [Job(f"{job.name} again")] if job.name in self.again else []

    def finish(self):
        self.finished = True


@pytest.fixture
def journal(tmp_path):
    with AnswerJournal(tmp_path / "answers.sqlite") as opened:
        yield opened


def reply(tokens_in=10, tokens_out=10):
    return Reply("好", False, False, tokens_in, tokens_out, False)


def names(count):
    return [f"j{number}" for number in range(count)]


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_every_job_is_settled_once_within_the_concurrency(journal, scripted, concurrency):
    endpoint = scripted(lambda job: reply())
    worker = Worker(names(20), journal, concurrency=concurrency)
    asyncio.run(worker.run())
    assert sorted(worker.settled) == sorted((name, "") for name in names(20))
    assert endpoint.busiest == min(concurrency, 20)
    assert (worker.finished, worker.stopped) == (True, "")


def test_follow_ups_are_sent_before_other_jobs(journal, scripted):
    endpoint = scripted(lambda job: reply())
    asyncio.run(Worker(names(4), journal, again=("j0", "j3"), concurrency=1).run())
    assert [job.name for job in endpoint.asked] == ["j0", "j0 again", "j1", "j2", "j3", "j3 again"]


@pytest.mark.parametrize(
    "limit", [{"budget_tokens": 100}, {"budget": 100.0, "price_in": 1e6, "price_out": 1e6}]
)
@pytest.mark.parametrize("concurrency", [1, 4, 50])
def test_a_budget_is_spent_to_the_same_amount_at_any_concurrency(journal, scripted, limit, concurrency):
    """Answers are shorter than was held for them."""
    scripted(lambda job: reply(10, 2))
    worker = Worker(names(30), journal, concurrency=concurrency, **limit)
    asyncio.run(worker.run())
    # After seven answers of twelve tokens, the next one might take twenty.
    assert len(worker.settled) == 7
    assert worker.budget.tokens == 84
    assert worker.stopped.startswith("84 of its")
    assert not worker.finished


def test_reasoning_that_no_estimate_knows_exceeds_a_budget_by_no_more_than_one_answer(journal, scripted):
    endpoint = scripted(lambda job: reply(10, 300))
    worker = Worker(names(60), journal, concurrency=32, budget_tokens=1000)
    asyncio.run(worker.run())
    assert len(endpoint.asked) == 3
    assert worker.stopped == "930 of its 1000 tokens are spent"


def test_an_outcome_is_settled_with_its_own_cost_paid(journal, scripted):
    def answer(job):
        if job.name == "j1":
            raise Unanswered("status-400")
        return reply()

    scripted(answer)
    worker = Worker(names(3), journal, concurrency=1, price_in=1e5, price_out=2e5)
    asyncio.run(worker.run())
    assert worker.settled == [("j0", ""), ("j1", "status-400"), ("j2", "")]
    assert worker.spent == [3.0, 3.0, 6.0]


def test_earlier_runs_count_against_the_budget(journal, scripted):
    endpoint = scripted(lambda job: reply())
    journal.insert("accounts", [("one", 1, 90, 5, 0.0, 0)])
    worker = Worker(names(3), journal, budget_tokens=100)
    asyncio.run(worker.run())
    assert endpoint.asked == []
    assert worker.stopped == "95 of its 100 tokens are spent"


def test_an_endpoint_that_gives_up_stops_the_run_and_leaves_its_jobs_unsettled(journal, scripted):
    def answer(job):
        if job.name == "j2":
            raise GiveUp("nobody there")
        return reply()

    scripted(answer)
    worker = Worker(names(9), journal, concurrency=1)
    asyncio.run(worker.run())
    assert worker.settled == [("j0", ""), ("j1", "")]
    assert (worker.stopped, worker.finished) == ("nobody there", False)


@pytest.mark.parametrize("where", ["settle", "more"])
def test_an_answer_that_cannot_be_stored_ends_the_run_after_those_under_way(journal, scripted, where):
    endpoint = scripted(lambda job: reply())

    class Failing(Worker):
        def more(self):
            if where == "more" and len(self.waiting) < 5:
                raise JournalError("full")
            return super().more()

        def settle(self, job, reply, reason):
            if where == "settle" and job.name == "j1":
                raise JournalError("full")
            return super().settle(job, reply, reason)

    worker = Failing(names(9), journal, concurrency=4)
    with pytest.raises(JournalError, match="full"):
        asyncio.run(worker.run())
    assert endpoint.busy == 0
    failed = int(where == "settle")
    assert len(worker.settled) == len(endpoint.asked) - failed
    assert len(endpoint.asked) < 9
    assert not worker.finished


def test_a_journal_in_trouble_buys_no_more(journal, scripted):
    def answer(job):
        journal.trouble = "The disk is full."
        return reply()

    endpoint = scripted(answer)
    worker = Worker(names(9), journal, concurrency=2)
    asyncio.run(worker.run())
    assert len(worker.settled) == len(endpoint.asked) == 2
    assert worker.stopped == "The disk is full."


@pytest.mark.parametrize(
    ("reasons", "limit", "useless"),
    [
        (["a", "b", "c"], 3, True),
        (["a", "b", "", "c", "d"], 3, False),
        (["", "a", "b", "c"], 3, True),
        (["a"], 1, True),
        (["a"] * 100, None, False),
    ],
)
def test_too_many_unusable_answers_in_a_row_stop_the_run(journal, reasons, limit, useless):
    worker = Worker([], journal, unreadable=limit)
    for reason in reasons:
        worker.used(reason)
    assert worker.useless is useless
    expected = f"{limit} answers in a row are of no use, the last one: {reasons[-1]}" if useless else ""
    assert worker.stop.reason == expected
