"""Asking several LLMs side by side: every answer is stored before it is used, and bought once."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.llm.client import Client, GiveUp, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.journal import Answer, Journal

__all__ = ["INTERRUPTED", "Asker", "Order", "ask_all"]

#: Why an LLM was stopped by Ctrl-C.
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Order:
    """A request.

    Attributes:
        key: Digest of everything that the answer depends on.
        prompt: The prompt.
        attempt: Number of earlier requests for the answer.
        job: What the asker needs to use the answer.
    """

    key: bytes
    prompt: Prompt
    attempt: int = 0
    job: Any = None


class Asker(ABC):
    """The requests to one LLM.

    Args:
        llm: The LLM.

    Attributes:
        bought: Number of answers received in this run.
        stopped: Why it ended before all requests were sent; empty if it did not.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.bought, self.stopped = 0, ""
        self._unusable = 0

    @abstractmethod
    def orders(self) -> Iterator[Order]:
        """Yield the requests."""

    @abstractmethod
    def settle(self, order: Order, answer: Answer, *, known: bool) -> Iterable[Order]:
        """Use an answer that is stored, and return further requests, which are sent first.

        Args:
            order: The request.
            answer: The answer, or the reason why there is none.
            known: Whether it was in the journal before.
        """

    def used(self, reason: str) -> None:
        """Count an answer received, and stop after too many in a row that are of no use.

        Args:
            reason: Why the whole answer is of no use; empty if it is.
        """
        self._unusable = self._unusable + 1 if reason else 0
        if self.llm.unreadable is not None and self._unusable >= self.llm.unreadable:
            self.stopped = (
                f"{self._unusable} answers in a row are of no use, the last one: {reason}. They are in the "
                "journal, table answers. Correct the cause, then give --retry-failed"
            )


class _Work:
    """An asker at work: its client, its threads and its queue."""

    def __init__(self, asker: Asker, journal: Journal, threads: ThreadPoolExecutor) -> None:
        self.asker, self.journal, self.threads = asker, journal, threads
        self.stop = threading.Event()
        self.client: Client | None = None
        self.pending = 0
        self.held = 0.0  # estimated cost of the requests under way
        self.cost = journal.account(asker.llm.name).cost
        self.queue: deque[Order] = deque()
        self.rest = asker.orders()

    def halt(self, reason: str) -> None:
        self.asker.stopped = self.asker.stopped or reason
        self.stop.set()

    def submit(self) -> Future[Answer] | None:
        """Send the next request that is not answered yet; `None`: nothing can be sent now."""
        asker = self.asker
        while not asker.stopped and self.pending < asker.llm.concurrency:
            order = self.queue.popleft() if self.queue else next(self.rest, None)
            if order is None:
                return None
            known = self.journal.get(order.key, order.attempt)
            if known is not None:
                self.queue.extendleft(reversed(list(asker.settle(order, known, known=True))))
                continue
            if not self._affordable(order):
                self.queue.appendleft(order)
                return None
            if self.client is None:
                self.client = Client(asker.llm, self.stop)
            identity = f"{order.key.hex()}-{order.attempt}"
            future = self.threads.submit(self.client.ask, order.prompt, identity)
            self.pending += 1
            future.order = order  # type: ignore[attr-defined]
            return future
        return None

    def store(self, future: Future[Answer]) -> Answer | None:
        """Store the answer of a request; `None`: the LLM is given up."""
        order = future.order  # type: ignore[attr-defined]
        self.pending -= 1
        self.held -= self.asker.llm.cost(*order.prompt.tokens)
        try:
            answer = future.result()
        except GiveUp as given_up:
            self.halt(str(given_up))
            return None
        answer = self.journal.put(order.key, order.attempt, self.asker.llm, answer)
        if answer.received:
            self.asker.bought += 1
            self.cost += self.asker.llm.cost(answer.tokens_in, answer.tokens_out)
        return answer

    def use(self, future: Future[Answer], answer: Answer) -> None:
        """Use an answer that is stored."""
        self.queue.extend(self.asker.settle(future.order, answer, known=False))  # type: ignore[attr-defined]
        if self.asker.stopped:
            self.stop.set()

    def _affordable(self, order: Order) -> bool:
        """Reserve the estimated cost of a request, or stop if the rest of the budget does not cover it."""
        llm = self.asker.llm
        cost = llm.cost(*order.prompt.tokens)
        if llm.budget is not None and self.cost + self.held + cost > llm.budget:
            if not self.pending:
                self.halt(
                    f"the rest of its budget does not cover the next request: {self.cost:.4g} are spent"
                )
            return False
        self.held += cost
        return True


def ask_all(askers: Sequence[Asker], journal: Journal) -> None:
    """Send all requests of all askers that the journal does not answer.

    Requests under way are always waited for, also after the first Ctrl-C; askers then have `INTERRUPTED` as
    the reason in `stopped`.

    Raises:
        MarError: A key is missing, or an answer cannot be stored.
    """
    with ExitStack() as stack:
        works = [
            _Work(asker, journal, stack.enter_context(ThreadPoolExecutor(asker.llm.concurrency)))
            for asker in askers
        ]
        with _interruptible(works):
            error = _work(works, journal)
        for work in works:
            if work.client is not None:
                work.client.close()
    if error is not None:
        raise error


def _work(works: Sequence[_Work], journal: Journal) -> Exception | None:
    """Send requests until all askers are done; return the first error, once no request is under way."""
    error: Exception | None = None
    running: dict[Future[Answer], _Work] = {}
    while True:
        try:
            for work in works:
                while (future := work.submit()) is not None:
                    running[future] = work
        except Exception as failure:
            error = error or failure
        if error is not None:
            for work in works:
                work.halt(str(error))
        if not running:
            return error
        done = {future: running.pop(future) for future in wait(running, return_when=FIRST_COMPLETED).done}
        try:
            # Answers are on the disk before the first of them is used.
            with journal.transaction():
                answers = {future: work.store(future) for future, work in done.items()}
            with journal.transaction():
                for future, work in done.items():
                    if (answer := answers[future]) is not None:
                        work.use(future, answer)
        except Exception as failure:
            error = error or failure


@contextmanager
def _interruptible(works: Sequence[_Work]) -> Iterator[None]:
    """Let pending answers arrive after the first Ctrl-C; do not wait after the second."""

    def interrupt(number: int, frame: Any) -> None:
        del number, frame
        signal.signal(signal.SIGINT, before)
        for work in works:
            work.halt(INTERRUPTED)

    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # only the main thread gets signals
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)
