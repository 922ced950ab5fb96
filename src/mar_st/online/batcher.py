"""Micro-batching: one thread computes what several callers ask for together."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from mar_st.online.protocol import QueryEncoder

__all__ = ["Batcher", "DeadlinePassed", "MicroBatcher", "QueueFull", "check_deadline"]

#: Longest time in seconds that the thread waits for expected callers.
WINDOW = 0.001

T = TypeVar("T")
R = TypeVar("R")


class QueueFull(MarError):  # noqa: N818 -- names a state
    """Too much work is waiting; the caller should retry later.

    Args:
        seconds: Expected time until the waiting work is done.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        super().__init__("Too many requests are waiting. Retry later.")


class DeadlinePassed(MarError):  # noqa: N818 -- names a state
    """The work was dropped because its caller stopped waiting."""


def check_deadline(deadline: float | None) -> None:
    """Stop work whose caller has given up.

    Args:
        deadline: Value of `time.monotonic()` until which the caller waits; `None`: no limit.

    Raises:
        DeadlinePassed: The deadline has passed.
    """
    if deadline is not None and time.monotonic() > deadline:
        raise DeadlinePassed("The deadline passed, so the work was stopped.")


@dataclass(eq=False)
class _Job(Generic[T, R]):
    """The items of one caller, with the results so far."""

    items: Sequence[T]
    key: Hashable
    deadline: float | None
    future: Future[Any] = field(default_factory=Future)
    submitted: float = field(default_factory=time.monotonic)
    results: list[R] = field(default_factory=list)
    taken: int = 0


class Batcher(Generic[T, R]):
    """Calls a function with the items of all waiting callers together, in a thread of its own.

    A free thread takes what waits, so a lone caller never waits. What comes while it computes makes the next
    batch. Callers that ask again as soon as they are answered would split into a batch of one and a batch of
    the rest; so after a batch of several callers, the thread waits up to `WINDOW` and a quarter of the time
    that the batch took for as many callers again. Callers with more items than fit a batch take turns.

    Args:
        work: Returns the result of each item of a batch. If it fails for a batch, it is called for each
            caller alone, so that a bad item fails only its own caller.
        max_batch: Maximum number of items per call.
        max_cost: Maximum sum of costs per call; a single item may cost more.
        max_queue: Maximum number of waiting items; a caller with more is accepted if nothing else waits.
        cost: Returns the cost of an item; default 0.
        observe: Called from the thread with `queue` (seconds, per caller), `size` (items), `work` (seconds).
    """

    def __init__(
        self,
        work: Callable[[list[T]], Sequence[R]],
        *,
        max_batch: int = 64,
        max_cost: float = float("inf"),
        max_queue: int = 1024,
        cost: Callable[[T], float] = lambda _: 0,
        observe: Callable[[str, float], Any] = lambda _name, _value: None,
    ) -> None:
        self._work, self._cost, self._observe = work, cost, observe
        self._max_batch, self._max_cost, self._max_queue = max_batch, max_cost, max_queue
        self._jobs: deque[_Job[T, R]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._last = (1, 0.0)  # callers in the last batch, and the seconds it took
        self._per_item = 0.0  # seconds, a moving mean
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """Return the number of items that wait."""
        return sum(len(job.items) - job.taken for job in list(self._jobs))

    def submit(
        self, items: Sequence[T], *, deadline: float | None = None, key: Hashable = None
    ) -> Future[Any]:
        """Queue the items of a caller.

        Args:
            items: The items.
            deadline: Value of `time.monotonic()` until which the caller waits; work not begun by then is
                dropped.
            key: Only items with equal keys share a call.

        Returns:
            A future of the results, which may be cancelled while it waits.

        Raises:
            QueueFull: Too many items wait, or the results would come after the deadline.
            MarError: The batcher is closed.
        """
        job: _Job[T, R] = _Job(items, key, deadline)
        with self._changed:
            if self._closed:
                raise MarError("The batcher is closed and takes no more work.")
            waiting = self.waiting
            seconds = waiting * self._per_item
            # Half of the time is for later stages, and for errors of the estimate.
            late = deadline is not None and time.monotonic() + 2 * seconds > deadline
            if waiting and (late or waiting + len(items) > self._max_queue):
                raise QueueFull(seconds)
            if items:
                self._jobs.append(job)
                self._changed.notify()
            else:
                job.future.set_result(self._combined([]))
        return job.future

    def close(self) -> None:
        """Finish what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if self._last[0] > 1:
                    window = min(WINDOW, self._last[1] / 4)
                    self._changed.wait_for(lambda: len(self._jobs) >= self._last[0] or self._closed, window)
                batch = self._take()
                if not batch and not self._jobs and self._closed:
                    return
            if batch:
                self._answer(batch)

    def _take(self) -> list[tuple[_Job[T, R], Sequence[T]]]:
        """Return the next batch: jobs, and the items of each; the lock is held."""
        batch: list[tuple[_Job[T, R], Sequence[T]]] = []
        others: list[_Job[T, R]] = []
        unfinished: list[_Job[T, R]] = []
        size, cost = 0, 0.0
        while self._jobs and size < self._max_batch and cost <= self._max_cost:
            job = self._jobs.popleft()
            if job.deadline is not None and time.monotonic() > job.deadline:
                _fail(job, DeadlinePassed("The deadline passed while the work waited."))
            if job.future.done():  # late, cancelled, or failed in an earlier batch
                continue
            if batch and job.key != batch[0][0].key:
                others.append(job)
                continue
            start = end = job.taken
            while end < len(job.items) and size < self._max_batch:
                cost += self._cost(job.items[end])
                if size and cost > self._max_cost:
                    break
                end, size = end + 1, size + 1
            if end == start:
                self._jobs.appendleft(job)
                break
            if not (job.future.running() or job.future.set_running_or_notify_cancel()):
                continue
            job.taken = end
            batch.append((job, job.items[start:end]))
            if end < len(job.items):
                unfinished.append(job)
        self._jobs.extendleft(reversed(others))
        self._jobs.extend(unfinished)
        return batch

    def _answer(self, batch: list[tuple[_Job[T, R], Sequence[T]]]) -> None:
        started = time.monotonic()
        size = sum(len(items) for _, items in batch)
        for job, _ in batch:
            if not job.results:
                self._observe("queue", started - job.submitted)
        results = self._results(batch)
        seconds = time.monotonic() - started
        self._last = (len(batch), seconds)
        self._per_item = 0.8 * self._per_item + 0.2 * seconds / size if self._per_item else seconds / size
        # Report before delivering: a caller may read the counters as soon as it has its results.
        self._observe("size", size)
        self._observe("work", seconds)
        for (job, _), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                _fail(job, result)
                continue
            job.results.extend(result)
            if len(job.results) == len(job.items) and not job.future.done():
                job.future.set_result(self._combined(job.results))

    def _combined(self, results: list[R]) -> Any:
        """Return the result of a job; the results of its items if this is not overridden."""
        return results

    def _results(self, batch: list[tuple[_Job[T, R], Sequence[T]]]) -> list[Sequence[R] | Exception]:
        """Return the results or the exception of each job."""
        try:
            results = self._work([item for _, items in batch for item in items])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for one in batch for result in self._results([one])]
        parts: list[Sequence[R] | Exception] = []
        start = 0
        for _, items in batch:
            parts.append(results[start : start + len(items)])
            start += len(items)
        return parts


def _fail(job: _Job[Any, Any], error: Exception) -> None:
    """Fail a job; items that still wait are dropped with it."""
    job.taken = len(job.items)
    with suppress(InvalidStateError):  # it was cancelled, or has failed already
        job.future.set_exception(error)


class MicroBatcher(Batcher[str, np.ndarray]):
    """Encodes the texts of several callers together.

    Args:
        encoder: The encoder.
        max_batch: Maximum number of texts per call.
        max_tokens: Maximum number of tokens per call, by an upper estimate of one per character.
        max_queue: Maximum number of waiting texts.
        observe: See `Batcher`.

    Example:
        ```python
        with MicroBatcher(load_query_encoder("exported")) as batcher:
            vectors = batcher.submit(["头疼吃什么药"]).result()
        ```
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        *,
        max_batch: int = 64,
        max_tokens: int = 2048,
        max_queue: int = 1024,
        observe: Callable[[str, float], Any] = lambda _name, _value: None,
    ) -> None:
        self.encoder = encoder
        super().__init__(
            lambda texts: list(encoder.encode(texts)),
            max_batch=max_batch,
            max_cost=max_tokens,
            max_queue=max_queue,
            cost=lambda text: min(len(text) + 8, encoder.max_length),
            observe=observe,
        )

    def submit(
        self, items: Sequence[str], *, deadline: float | None = None, key: Hashable = None
    ) -> Future[Any]:
        """Queue texts for encoding; see `Batcher.submit`. The future is of float32 `(len(items), dim)`."""
        if isinstance(items, str) or not all(isinstance(text, str) for text in items):
            raise TypeError("submit takes a sequence of strings.")
        return super().submit(items, deadline=deadline, key=key)

    def _combined(self, results: list[np.ndarray]) -> np.ndarray:
        return np.array(results, dtype=np.float32).reshape(-1, self.encoder.dim)
