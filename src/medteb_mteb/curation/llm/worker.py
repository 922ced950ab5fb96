"""Concurrent requests to one LLM, up to its limit; each answer is processed as it arrives."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from medteb_mteb.curation.llm.budget import Budget
from medteb_mteb.curation.llm.client import Endpoint, GiveUp, Unanswered
from medteb_mteb.curation.llm.limits import RateLimits, Stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.database import Database
    from medteb_mteb.curation.llm.messages import Question, Reply

__all__ = ["EndpointWorker", "Job"]


class Job(Protocol):
    """A prompt to send and its key."""

    @property
    def prompt(self) -> Question:
        """Return the prompt to send."""


JobT = TypeVar("JobT", bound=Job)


class EndpointWorker(ABC, Generic[JobT]):
    """Sends one LLM all jobs that `more` returns.

    Args:
        llm: The LLM.
        journal: Receives the answers.
        settings: Digest of the LLM's settings.
        description: The settings.
    """

    def __init__(
        self, llm: LLM, journal: Database[Any], settings: bytes, description: Mapping[str, Any]
    ) -> None:
        self.llm, self.settings, self.description = llm, settings, description
        self._journal = journal
        self.budget = Budget(llm, journal.account(llm.name))
        self.stop = Stop()
        self.faults: dict[str, int] = {}
        #: Why it ended before all requests were sent; empty if it did not.
        self.stopped = ""
        self._unreadable = 0
        #: Whether too many answers in a row were unusable.
        self.useless = False
        self._urgent: deque[JobT] = deque()
        self._next: deque[JobT] = deque()

    @abstractmethod
    def more(self) -> Iterable[JobT]:
        """Return the next jobs, about as many as can run at once; none at the end."""

    @abstractmethod
    def settle(self, job: JobT, reply: Reply | None, reason: str) -> Iterable[JobT]:
        """Store the outcome of a job before anything else is done.

        Args:
            job: The job.
            reply: The answer; `None` if there is none.
            reason: Why there is none.

        Returns:
            Follow-up requests, which are sent first.
        """

    def used(self, reason: str) -> None:
        """Count an answer; stop after too many unusable ones in a row.

        Args:
            reason: Why the whole answer is unusable; empty if a part of it is usable.
        """
        self._unreadable = self._unreadable + 1 if reason else 0
        if self.llm.unreadable is not None and self._unreadable >= self.llm.unreadable:
            self.useless = True
            self.stop.set(f"{self._unreadable} answers in a row are of no use, the last one: {reason}")

    def finish(self) -> None:
        """Finish; called when all requests are done."""

    async def run(self) -> None:
        """Send requests until none is left, the budget is spent, or the endpoint fails.

        Requests under way are always waited for.

        Raises:
            JournalError: An answer could not be stored; raised when no request is pending.
        """
        limits = RateLimits(self.llm.requests_per_minute, self.llm.tokens_per_minute)
        self._journal.describe(self.settings, self.description)
        async with Endpoint(self.llm, limits, self.stop) as endpoint:
            self.faults = endpoint.faults
            running: set[asyncio.Task[None]] = set()
            error: BaseException | None = None
            while True:
                try:
                    while not self._halted() and len(running) < self.llm.concurrency:
                        taken = self._take(pending=bool(running))
                        if taken is None:
                            break
                        running.add(asyncio.create_task(self._serve(endpoint, *taken)))
                except Exception as failure:
                    error = error or failure
                    self.stop.set("the journal cannot be read")
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for finished in done:
                    task_error = finished.exception()
                    if task_error is not None:
                        error = error or task_error
                        self.stop.set("an answer could not be written down")
            self.stopped = self.stopped or self.stop.reason
            if error is not None:
                raise error
            if not self.stopped:
                self.finish()

    def _halted(self) -> bool:
        if self._journal.trouble:
            self.stop.set(self._journal.trouble)
        return bool(self.stop.reason or self.stopped)

    def _take(self, *, pending: bool) -> tuple[JobT, tuple[int, int]] | None:
        """Return the next job that the budget covers, and the tokens held for it.

        Args:
            pending: Whether answers are awaited; if they cost less than was held for them, the budget may
                still cover the next job.
        """
        if not self._urgent and not self._next:
            self._next.extend(self.more())
        queue = self._urgent or self._next
        if not queue:
            return None
        held = self.budget.hold(*queue[0].prompt.tokens())
        if held is None:
            if not pending:
                self.stopped = self.budget.exhausted()
            return None
        return queue.popleft(), held

    async def _serve(self, endpoint: Endpoint, job: JobT, held: tuple[int, int]) -> None:
        reply: Reply | None = None
        reason = ""
        try:
            reply = await endpoint.ask(job.prompt)
        except Unanswered as unanswered:
            reason = unanswered.reason
        except GiveUp as given_up:
            self.stop.set(str(given_up))
            return
        finally:
            self.budget.free(held)
        if reply is not None:
            self.budget.pay(reply.tokens_in, reply.tokens_out)
        self._urgent.extend(self.settle(job, reply, reason))
