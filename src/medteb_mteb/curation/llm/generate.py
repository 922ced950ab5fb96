"""Answers of LLMs to prompts: every answer is stored before it is used, and bought once."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tqdm.auto import tqdm

from medteb_mteb.curation.llm.client import Client, GiveUp, Prompt
from medteb_mteb.curation.llm.journal import Account, Answer, Journal, settings_digest
from medteb_mteb.curation.llm.tolerant import Rejected, spoken

if TYPE_CHECKING:
    from medteb_mteb.curation.llm.settings import LLM

#: Answers of no use in a row after which an LLM is stopped.
MAX_UNUSABLE = 20

T = TypeVar("T")


@dataclass
class Generation(Generic[T]):
    """What an LLM has answered.

    Attributes:
        answers: Result of `read` for each answer, by key of the prompt.
        failed: Reason by key, for prompts without a valid answer.
        unanswered: Keys of the failed prompts that the endpoint gave no answer to.
        rows: Row in the journal of the last answer to each prompt, by key.
        known: Number of prompts whose answer was in the journal.
        bought: Number of answers received in this run, valid or not.
        account: Cost of this LLM in the journal, over all runs.
        stopped: Why the run ended early; empty if each prompt has an answer or has failed.
        answered: Models that answered, with dates and numbers of answers, as in `provenance.json`.
    """

    answers: dict[str, T] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    known: int = 0
    bought: int = 0
    account: Account = field(default_factory=Account)
    stopped: str = ""
    answered: list[dict[str, Any]] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """Return the numbers of a report."""
        reasons = dict(sorted(Counter(self.failed.values()).items()))
        return {"failed": reasons, "known": self.known, "bought": self.bought, "paid": asdict(self.account)}


@dataclass
class Job(Generic[T]):
    """Prompts for an LLM; those with the same text and variant share one answer.

    Attributes:
        llm: The LLM.
        prompts: The prompts, each with a unique key; they are taken one after another, as they are sent.
        version: Version of the prompts: of everything that answers depend on and that is not in their texts.
        read: Returns the result to keep of a prompt and its answer, or raises `Rejected`.
        again: Ask once more for what is rejected, or failed in earlier runs.
        count: Number of prompts, for the progress bar.
    """

    llm: LLM
    prompts: Iterable[Prompt]
    version: str
    read: Callable[[Prompt, str], T]
    again: bool = True
    count: int | None = None


class _Worker(Generic[T]):
    """A job at work: its client, its threads and its queue."""

    def __init__(self, job: Job[T], journal: Journal, threads: ThreadPoolExecutor, bar: tqdm[Any]) -> None:
        self.job, self.llm, self.journal, self.threads, self.bar = job, job.llm, journal, threads, bar
        self.result: Generation[T] = Generation()
        self.stop = threading.Event()
        self.client: Client | None = None
        self.pending = self.unusable = 0
        self.held = 0.0  # estimated cost of the requests under way
        self.cost = journal.account(job.llm.name).cost
        self.waiting: dict[bytes, list[Prompt]] = {}
        self.queue: deque[tuple[bytes, Prompt, int]] = deque()
        self.rest = self._first_attempts()

    def _first_attempts(self) -> Iterator[tuple[bytes, Prompt, int]]:
        settings = settings_digest(self.llm.settings(self.job.version))
        for prompt in self.job.prompts:
            key = answer_key(settings, prompt)
            if key in self.waiting:
                self.waiting[key].append(prompt)
            else:
                self.waiting[key] = [prompt]
                yield key, prompt, 0

    def halt(self, reason: str) -> None:
        self.result.stopped = self.result.stopped or reason
        self.stop.set()

    def submit(self) -> Future[Answer] | None:
        """Send the next request that is not answered yet; `None`: nothing can be sent now."""
        while not self.result.stopped and self.pending < self.llm.concurrency:
            order = self.queue.popleft() if self.queue else next(self.rest, None)
            if order is None:
                return None
            key, prompt, attempt = order
            if (known := self.journal.get(key, attempt)) is not None:
                self.settle(order, known, known=True)
                continue
            if not self._affordable(prompt):
                self.queue.appendleft(order)
                return None
            self.client = self.client or Client(self.llm, self.stop)
            future = self.threads.submit(self.client.ask, prompt, f"{key.hex()}-{attempt}")
            future.order = order  # type: ignore[attr-defined]
            self.pending += 1
            return future
        return None

    def _affordable(self, prompt: Prompt) -> bool:
        """Reserve the estimated cost of a request, or stop if the rest of the budget does not cover it."""
        cost = self.llm.cost(*prompt.tokens)
        if self.llm.budget is not None and self.cost + self.held + cost > self.llm.budget:
            if not self.pending:
                self.halt(
                    f"the rest of its budget does not cover the next request: {self.cost:.4g} are spent"
                )
            return False
        self.held += cost
        return True

    def store(self, future: Future[Answer]) -> Answer | None:
        """Store the answer of a request; `None`: the LLM is given up."""
        key, prompt, attempt = future.order  # type: ignore[attr-defined]
        self.pending -= 1
        self.held -= self.llm.cost(*prompt.tokens)
        try:
            answer = future.result()
        except GiveUp as given_up:
            self.halt(str(given_up))
            return None
        if answer.received:
            self.result.bought += 1
            self.cost += self.llm.cost(answer.tokens_in, answer.tokens_out)
        return self.journal.put(key, attempt, self.llm, answer, prompt.texts)

    def settle(self, order: tuple[bytes, Prompt, int], answer: Answer, *, known: bool) -> None:
        """Use an answer that is stored; an invalid one is requested again, if attempts are left."""
        key, prompt, attempt = order
        reason = "" if answer.received else answer.ending
        rejected = []
        for one in self.waiting[key]:
            self.result.rows[one.key] = answer.id
            try:
                self.result.answers[one.key] = read_answer(one, answer, self.job.read)
            except Rejected as error:
                reason = error.reason
                rejected.append(one)
        if not known and answer.received:
            self._count_unusable(reason)
        done = len(self.waiting[key]) - len(rejected)
        self.result.known += done if known else 0
        wanted = self.job.again and (known or (attempt == 0 and answer.received))
        if rejected and (wanted or self.journal.get(key, attempt + 1) is not None):
            self.waiting[key] = rejected
            self.queue.append((key, prompt, attempt + 1))
        else:
            del self.waiting[key]
            self.result.failed.update((one.key, reason) for one in rejected)
            self.result.unanswered.update(one.key for one in rejected if not answer.received)
            done += len(rejected)
        self.bar.update(done)

    def _count_unusable(self, reason: str) -> None:
        """Stop after too many answers in a row that are of no use, `reason` being why the last one is not."""
        self.unusable = self.unusable + 1 if reason else 0
        if self.unusable >= MAX_UNUSABLE:
            self.halt(
                f"{self.unusable} answers in a row are of no use, the last one: {reason}. They are in the "
                "journal, table answers. Correct the cause"
            )


def read_answer(prompt: Prompt, answer: Answer, read: Callable[[Prompt, str], T]) -> T:
    """Return what `read` makes of an answer, see `Job`.

    Raises:
        Rejected: `read` rejects it, it is empty, there is none, or it was cut off and does not hold it all.
    """
    if answer.ending not in ("", "cut"):
        raise Rejected(answer.ending)
    # A draft in thoughts that were cut off does not count as an answer.
    text = spoken(answer.text, cut=True) if answer.ending else answer.text
    if not text.strip():
        raise Rejected(answer.ending or "empty")
    try:
        return read(prompt, text)
    except Rejected as error:
        raise Rejected(answer.ending or error.reason) from None


def ask(jobs: Sequence[Job[T]], journal: Journal, *, name: str) -> list[Generation[T]]:
    """Have several LLMs answer prompts side by side; an answer that was paid for is never bought again.

    An answer is stored in the journal unchanged, under the digest of (settings of the LLM, version, system,
    user, variant), before it is read. If a run is killed at any moment and called again, only pending answers
    are bought twice (and not even those if the endpoint honours `Idempotency-Key`), and no answer that
    arrived is lost.

    Args:
        jobs: The LLMs with their prompts.
        journal: The journal.
        name: Label of the progress bar.

    Raises:
        MarError: A key or the openai package is missing, or an answer cannot be stored.
        KeyboardInterrupt: After Ctrl-C, once the pending answers are stored.
    """
    total = sum(job.count or 0 for job in jobs)
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=total or None, desc=name, unit="answers", disable=None))
        pools = [stack.enter_context(ThreadPoolExecutor(job.llm.concurrency)) for job in jobs]
        workers = [_Worker(job, journal, threads, bar) for job, threads in zip(jobs, pools, strict=True)]
        with _interruptible(workers) as interrupted:
            error = _work(workers, journal)
        for worker in workers:
            if worker.client is not None:
                worker.client.close()
    if error is not None:
        raise error
    if interrupted.is_set():
        raise KeyboardInterrupt
    for worker in workers:
        worker.result.account = journal.account(worker.llm.name)
        rows = Counter(row for key, row in worker.result.rows.items() if key in worker.result.answers)
        worker.result.answered = journal.origins(rows, "answers")
    return [worker.result for worker in workers]


def _work(workers: Sequence[_Worker[Any]], journal: Journal) -> Exception | None:
    """Send requests until all jobs are done; return the first error, once no request is under way."""
    error: Exception | None = None
    running: dict[Future[Answer], _Worker[Any]] = {}
    while True:
        try:
            for worker in workers:
                while (future := worker.submit()) is not None:
                    running[future] = worker
        except Exception as failure:
            error = error or failure
        if error is not None:
            for worker in workers:
                worker.halt(str(error))
        if not running:
            return error
        done = {future: running.pop(future) for future in wait(running, return_when=FIRST_COMPLETED).done}
        try:
            # Answers are on the disk before the first of them is used.
            with journal.transaction():
                answers = {future: worker.store(future) for future, worker in done.items()}
            for future, worker in done.items():
                if (answer := answers[future]) is not None:
                    worker.settle(future.order, answer, known=False)  # type: ignore[attr-defined]
        except Exception as failure:
            error = error or failure


@contextmanager
def _interruptible(workers: Sequence[_Worker[Any]]) -> Iterator[threading.Event]:
    """Let pending answers arrive after the first Ctrl-C; do not wait after the second."""
    interrupted = threading.Event()

    def interrupt(number: int, frame: Any) -> None:
        del number, frame
        signal.signal(signal.SIGINT, before)
        interrupted.set()
        for worker in workers:
            worker.halt("interrupted")

    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # only the main thread gets signals
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)


def answer_key(settings: bytes, prompt: Prompt) -> bytes:
    """Return the key of an answer, 16 bytes, from the digest of the settings and the prompt."""
    parts = (prompt.system, prompt.user, prompt.variant)
    digests = [hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest() for part in parts]
    return hashlib.sha256(settings + b"".join(digests)).digest()[:16]
