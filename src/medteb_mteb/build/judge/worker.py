"""One judge at work: requests sent, answers read and written down, what went wrong asked for once more."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from medteb_mteb.build.judge.client import Endpoint, GiveUp, Unanswered
from medteb_mteb.build.judge.entries import Account, Failure
from medteb_mteb.build.judge.injection import CONTROL_GRADES
from medteb_mteb.build.judge.limits import Limits, Stop
from medteb_mteb.build.judge.schema import Verdict, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medteb_mteb.build.judge.budget import Purse
    from medteb_mteb.build.judge.client import Reply
    from medteb_mteb.build.judge.journal import Journal
    from medteb_mteb.build.judge.plan import Planner, Task

__all__ = ["Progress", "Tally", "Worker"]


class Progress(Protocol):
    """Told what comes in."""

    def __call__(self, *, graded: int, failed: int, cost: float) -> None:
        """So many judgements are graded or failed for good, and so much was paid."""


@dataclass
class Tally:
    """What a judge did in this run.

    Attributes:
        bought: Grades that came in.
        failed: Judgements that came to nothing.
        asked_again: Judgements that were asked for once more, alone.
        distrusted: Answers that were thrown away as a whole, by reason; `control` are those whose control
            passage was graded as if it had to do with the query.
    """

    bought: int = 0
    failed: int = 0
    asked_again: int = 0
    distrusted: Counter[str] = field(default_factory=Counter)


class Worker:
    """Asks one judge for all that a planner wants.

    Args:
        planner: The requests.
        journal: Where answers go.
        purse: The judge's budget.
        progress: Told what comes in.
    """

    def __init__(self, planner: Planner, journal: Journal, purse: Purse, progress: Progress) -> None:
        self.planner, self.journal, self.purse, self.progress = planner, journal, purse, progress
        self.judge = planner.judge
        self.stop = Stop()
        self.tally = Tally()
        self.faults: dict[str, int] = {}
        #: Why it ended before everything was asked for; empty if it did not.
        self.stopped = ""
        self._tasks: Iterator[Task] = iter(())
        self._urgent: deque[Task] = deque()
        self._next: deque[Task] = deque()

    async def run(self) -> None:
        """Ask until there is nothing left to ask for, the budget is spent, or the endpoint gives up.

        Requests under way are always waited for.

        Raises:
            JournalError: An answer could not be written down; raised when no request is under way any more.
        """
        limits = Limits(self.judge.requests_per_minute, self.judge.tokens_per_minute)
        self.journal.describe(self.planner.settings, self.planner.description)
        self._tasks = self.planner.tasks()
        async with Endpoint(self.judge, limits, self.stop) as endpoint:
            self.faults = endpoint.faults
            running: set[asyncio.Task[None]] = set()
            error: BaseException | None = None
            while True:
                try:
                    while not self._halted() and len(running) < self.judge.concurrency:
                        task = self._take()
                        if task is None:
                            break
                        running.add(asyncio.create_task(self._serve(endpoint, task)))
                except Exception as found:
                    error = error or found
                    self.stop.set("the journal cannot be read")
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for finished in done:
                    found_error = finished.exception()
                    if found_error is not None:
                        error = error or found_error
                        self.stop.set("an answer could not be written down")
            self.stopped = self.stopped or self.stop.reason
            if error is not None:
                raise error
            if not self.stopped:
                self.journal.forget(self.planner.settings, self.planner.stale)

    def _halted(self) -> bool:
        if self.journal.trouble:
            self.stop.set(self.journal.trouble)
        return bool(self.stop.reason or self.stopped)

    def _take(self) -> Task | None:
        """The next request that the budget allows for; it is written down."""
        if not self._urgent and not self._next:
            for task in self._tasks:
                self._next.append(task)
                if len(self._next) >= self.judge.concurrency:
                    break
            # One transaction for as many as can be under way at once.
            if self._next:
                self.journal.decide(self.planner.settings, [task.request for task in self._next])
        queue = self._urgent or self._next
        if not queue:
            return None
        if not self.purse.hold(*queue[0].prompt.tokens()):
            self.stopped = self.purse.exhausted()
            return None
        return queue.popleft()

    async def _serve(self, endpoint: Endpoint, task: Task) -> None:
        reply: Reply | None = None
        try:
            reply = await endpoint.ask(task.prompt)
        except Unanswered as unanswered:
            verdict = Verdict({}, dict.fromkeys(range(len(task.prompt.keys)), unanswered.reason))
        except GiveUp as given_up:
            self.stop.set(str(given_up))
            return
        else:
            verdict = read_answer(reply.content, task.prompt.keys, refused=reply.refused, cut=reply.cut)
        finally:
            self.purse.free(*task.prompt.tokens())
        self._settle(task, reply, verdict)

    def _settle(self, task: Task, reply: Reply | None, verdict: Verdict) -> None:
        """Write down what a request has come to, before anything else is done."""
        if task.control is not None and verdict.grades:
            verdict = _controlled(verdict, task.control)
        if verdict.whole:
            self.tally.distrusted[verdict.whole] += 1
        pairs = list(zip(task.request.keys, task.numbers, strict=True))
        grades = {key: verdict.grades[number] for key, number in pairs if number in verdict.grades}
        reasons = {key: verdict.missing[number] for key, number in pairs if number not in verdict.grades}
        follow: list[Task] = []
        failures: dict[bytes, Failure] = {}
        if task.request.attempt == 0:
            follow = self.planner.follow_up(task, reasons)
        else:
            failures = {key: Failure(reason, task.request.attempt) for key, reason in reasons.items()}
        paid = self._paid(task, reply, flagged=verdict.whole == "control")
        self.journal.settle(
            self.planner.settings,
            task.request,
            judge=self.judge.name,
            grades=grades,
            failures=failures,
            follow=[other.request for other in follow],
            paid=paid,
        )
        self._urgent.extend(follow)
        self.purse.pay(paid.tokens_in, paid.tokens_out)
        self.tally.bought += len(grades)
        self.tally.failed += len(failures)
        self.tally.asked_again += len(follow)
        self.progress(graded=len(grades), failed=len(failures), cost=paid.cost)

    def _paid(self, task: Task, reply: Reply | None, *, flagged: bool) -> Account:
        if reply is None:
            return Account()
        cost = self.judge.cost(reply.tokens_in, reply.tokens_out)
        controls = int(task.control is not None)
        return Account(
            1, reply.tokens_in, reply.tokens_out, cost, int(reply.estimated), controls, int(flagged)
        )


def _controlled(verdict: Verdict, control: int) -> Verdict:
    """The verdict, if its control passage bears it out; else one that trusts nothing."""
    grade = verdict.grades.get(control)
    if grade in CONTROL_GRADES:
        return verdict
    reason = "control-missing" if grade is None else "control"
    everything = dict.fromkeys([*verdict.grades, *verdict.missing], reason)
    return Verdict({}, everything, reason)
