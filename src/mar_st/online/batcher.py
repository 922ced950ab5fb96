"""Micro-batching: texts of concurrent callers are encoded together."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.errors import MarError
from mar_st.online.waiting import (
    SHORT_TOKENS,
    DeadlinePassed,
    EncodeRequest,
    Piece,
    QueueFull,
    RequestQueues,
    cut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from mar_st.online.protocol import QueryEncoder

__all__ = ["Closed", "DeadlinePassed", "MicroBatcher", "QueueFull"]

_LOG = logging.getLogger(__name__)

#: Target seconds of a batch of large requests; small requests wait that long for it.
LONG_BATCH_SECONDS = 0.01


class Closed(MarError):  # noqa: N818 -- names a state
    """The batcher takes no more work."""


class MicroBatcher:
    """Encodes the texts of several callers together, in its own threads.

    A free worker takes all waiting texts, so a lone caller never waits. Texts that come while it computes
    make the next batch. Callers that ask again as soon as they are answered would split into a batch of one
    and a batch of the rest. So after a batch of several callers, a worker waits for as many callers again, up
    to `window_ms` and a quarter of the time that the batch took.

    Small requests do not wait for large ones: these have a separate queue, and their batches are limited to
    the work of `LONG_BATCH_SECONDS` (or to `SHORT_TOKENS` tokens, if that takes longer).

    The vectors are those that the encoder gives for each text alone, unless its vectors depend on the other
    texts of a batch. If a batch fails, each caller's texts are encoded alone, so that a bad text fails only
    its own caller.

    Args:
        encoder: The encoder; its `encode` is called from `workers` threads at once.
        max_batch: Maximum number of texts per batch. A request with more texts is split into several batches.
        max_tokens: Maximum number of tokens per batch, by an upper estimate of one per character.
        window_ms: Maximum number of milliseconds that a free worker waits for more texts; 0 never waits.
        max_queue: Maximum number of waiting texts, separately for short and for long requests. A request with
            more texts is accepted only if its queue is empty.
        workers: Threads that call the encoder.
        observe: Called with `queue_seconds` (per caller), `batch_size` (texts) and `encode_seconds`, from the
            threads of the batcher.
        delivering: Context manager that is entered for each batch while its results are set, so that they
            can be handled together.

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
        max_tokens: int = 8192,
        window_ms: float = 1.0,
        max_queue: int = 1024,
        workers: int = 1,
        observe: Callable[[str, float], Any] | None = None,
        delivering: AbstractContextManager[Any] | None = None,
    ) -> None:
        limits = {
            "max_batch": max_batch,
            "max_tokens": max_tokens,
            "max_queue": max_queue,
            "workers": workers,
        }
        for name, value in limits.items():
            if value < 1:
                raise MarError(f"{name} is at least 1; got {value}.")
        if window_ms < 0:
            raise MarError(f"window_ms is not negative; got {window_ms}.")
        self.encoder = encoder
        self.max_batch, self.max_tokens, self.window = max_batch, max_tokens, window_ms / 1000
        self._observe = observe
        self._delivering = nullcontext() if delivering is None else delivering
        self._queues = RequestQueues(max_queue)
        self._changed = threading.Condition()
        self._closed = False
        self._last = (1, 0.0)  # callers in the last batch, and the seconds it took
        self._per_token = 0.0  # seconds in long batches, a moving mean; 0 while unknown
        self._threads = [
            threading.Thread(target=self._work, name=f"encode-{index}", daemon=True)
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(finish=error[0] is None)

    @property
    def waiting(self) -> int:
        """Return the number of texts that wait for a worker."""
        return self._queues.texts

    @property
    def waiting_short(self) -> int:
        """Return the number of waiting texts of small requests, which do not wait for the others."""
        return self._queues.short.texts

    def submit(
        self, texts: Sequence[str], *, deadline: float | None = None, prompt_name: str | None = None
    ) -> Future[np.ndarray]:
        """Queue texts for encoding.

        Args:
            texts: Texts of one caller; may be empty.
            deadline: Value of `time.monotonic()` after which the caller gives up; work not started by then is
                dropped.
            prompt_name: As for the encoder; texts with different prompts are not batched together.

        Returns:
            A future of float32 `(len(texts), dim)`. It may be cancelled while it waits. Its exception is
            `DeadlinePassed`, `Closed`, or what the encoder raised for these texts.

        Raises:
            QueueFull: Too many texts wait.
            Closed: The batcher was closed.
            TypeError: `texts` is not a sequence of strings.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError("submit takes a sequence of strings.")
        request = EncodeRequest(prompt_name, deadline)
        limits = {"max_texts": self.max_batch, "max_tokens": self._long_tokens}
        cut(request, texts, max_length=self.encoder.max_length, **limits)
        with self._changed:
            if self._closed:
                raise Closed("The batcher is closed and takes no more texts.")
            if not request.pieces:
                request.future.set_result(np.empty((0, self.encoder.dim), dtype=np.float32))
                return request.future
            self._queues.add(request)
            self._changed.notify()
        return request.future

    @property
    def _long_tokens(self) -> int:
        """Return the maximum tokens of a batch of large requests."""
        if not self._per_token:
            return min(SHORT_TOKENS, self.max_tokens)
        return min(self.max_tokens, max(SHORT_TOKENS, int(LONG_BATCH_SECONDS / self._per_token)))

    def close(self, *, finish: bool = True) -> None:
        """Accept no more texts and end the threads; further calls do nothing.

        Args:
            finish: Encode waiting texts first; otherwise they fail with `Closed`. Batches in progress are
                finished in both cases.
        """
        with self._changed:
            self._closed = True
            dropped = [] if finish else self._queues.clear()
            self._changed.notify_all()
        for request in dropped:
            request.fail(Closed("The batcher was closed before these texts were encoded."))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._queues) or self._closed)
                if not len(self._queues):
                    return
                self._gather()
                batch, late = self._queues.take(self.max_batch, self.max_tokens, self._long_tokens)
                if len(self._queues):
                    self._changed.notify()  # the worker notified before may be busy
            for request in late:
                request.fail(DeadlinePassed("The deadline passed while the texts waited for the encoder."))
            if batch:
                self._encode(batch)

    def _gather(self) -> None:
        """Wait a moment for callers that are expected; the lock is held."""
        callers, seconds = self._last
        window = min(self.window, seconds / 4)
        if callers > 1 and window > 0 and not self._closed:
            self._changed.wait_for(lambda: len(self._queues) >= callers or self._closed, timeout=window)

    def _encode(self, batch: list[Piece]) -> None:
        started = time.monotonic()
        for piece in batch:
            if piece.start == 0:
                self._tell("queue_seconds", started - piece.request.submitted)
        self._tell("batch_size", sum(len(piece.texts) for piece in batch))
        results = self._results(batch)
        seconds = time.monotonic() - started
        self._last = (len({id(piece.request) for piece in batch}), seconds)
        tokens = sum(piece.tokens for piece in batch)
        if tokens >= SHORT_TOKENS // 2:
            mean = self._per_token
            self._per_token = 0.8 * mean + 0.2 * seconds / tokens if mean else seconds / tokens
        # Report before delivering: a caller may read the counters as soon as it has its vectors.
        self._tell("encode_seconds", seconds)
        with self._delivering:
            for piece, result in results:
                if isinstance(result, BaseException):
                    piece.request.fail(result)
                else:
                    piece.request.finish(piece.start, result)

    def _results(self, batch: list[Piece]) -> list[tuple[Piece, np.ndarray | Exception]]:
        """Return the vectors or the exception of each piece; encode the pieces together if that works."""
        try:
            return self._vectors(batch)
        except Exception as error:
            if len(batch) == 1:
                return [(batch[0], error)]
            return [result for piece in batch for result in self._results([piece])]

    def _vectors(self, batch: list[Piece]) -> list[tuple[Piece, np.ndarray | Exception]]:
        texts = [text for piece in batch for text in piece.texts]
        vectors = self.encoder.encode(texts, batch[0].request.prompt_name)
        if vectors.shape != (len(texts), self.encoder.dim):
            raise MarError(
                f"The encoder gave an array of shape {vectors.shape} for {len(texts)} texts of "
                f"{self.encoder.dim} dimensions."
            )
        results: list[tuple[Piece, np.ndarray | Exception]] = []
        start = 0
        for piece in batch:
            end = start + len(piece.texts)
            results.append((piece, vectors[start:end]))
            start = end
        return results

    def _tell(self, name: str, value: float) -> None:
        if self._observe is None:
            return
        try:
            self._observe(name, value)
        except Exception:  # an observer must not stop the work
            _LOG.exception("observe(%r) failed", name)
