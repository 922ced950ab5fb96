"""The bounded queues of a batcher: requests are cut into pieces that fit a batch, and take turns."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Maximum tokens, by their upper estimate, of a request in the queue of short requests.
SHORT_TOKENS = 256


class QueueFull(MarError):  # noqa: N818 -- names a state
    """Too many texts are waiting; the caller should retry later."""


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
class Piece:
    """Texts of one caller that go through the encoder together.

    Attributes:
        request: The request that the texts belong to.
        start: Position of the first text in the request.
        texts: The texts.
        tokens: Upper estimate of the number of tokens.
    """

    request: EncodeRequest
    start: int
    texts: list[str]
    tokens: int


@dataclass(eq=False)
class EncodeRequest:
    """Texts of one caller, with their vectors as these are computed.

    Attributes:
        prompt_name: The prompt for its texts.
        deadline: Value of `time.monotonic()` after which the caller no longer waits.
        pieces: Pieces that no worker has taken yet.
        future: Result that the caller holds.
        submitted: Value of `time.monotonic()` when the request arrived.
        vectors: Vectors computed so far, by position of the first text.
        missing: Number of texts without a vector.
        tokens: Upper estimate of the tokens of all texts.
        answered: True if the future has its result or error, or is about to get it.
        lock: Held while the fields above change; several workers may have pieces of one request.
    """

    prompt_name: str | None
    deadline: float | None
    pieces: deque[Piece] = field(default_factory=deque)
    future: Future[np.ndarray] = field(default_factory=Future)
    submitted: float = field(default_factory=time.monotonic)
    vectors: dict[int, np.ndarray] = field(default_factory=dict)
    missing: int = 0
    tokens: int = 0
    answered: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def late(self) -> bool:
        """Return True if its deadline has passed."""
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def waiting(self) -> int:
        """Return the number of texts that have not been taken."""
        return sum(len(piece.texts) for piece in self.pieces)

    def begin(self) -> bool:
        """Mark the work as begun; return `False` if it is no longer wanted: cancelled, failed or finished."""
        with self.lock:
            if self.future.running():
                return True
            if self.answered:
                return False
            # A cancelled future may be notified once; it then counts as answered.
            wanted = self.future.set_running_or_notify_cancel()
            self.answered = not wanted
            return wanted

    def finish(self, start: int, vectors: np.ndarray) -> None:
        """Store vectors; the last ones complete the future."""
        with self.lock:
            self.vectors[start] = vectors
            self.missing -= len(vectors)
            if self.missing or self.answered:
                return
            self.answered = True
        parts = [self.vectors[key] for key in sorted(self.vectors)]
        self.future.set_result(np.concatenate(parts))  # a copy, so that no caller keeps a whole batch alive

    def fail(self, error: BaseException) -> None:
        """Fail the request; only the first error counts."""
        if not self.begin():
            return
        with self.lock:
            if self.answered:
                return
            self.answered = True
        self.future.set_exception(error)


def cut(
    request: EncodeRequest, texts: Sequence[str], *, max_texts: int, max_tokens: int, max_length: int
) -> None:
    """Add texts to a request, in pieces of at most `max_texts` texts and about `max_tokens` tokens.

    Each character counts as a token, which overestimates most texts but needs no tokenisation.
    """
    request.missing = len(texts)
    for index, text in enumerate(texts):
        cost = _tokens(text, max_length)
        request.tokens += cost
        last = request.pieces[-1] if request.pieces else None
        if last is None or len(last.texts) >= max_texts or last.tokens + cost > max_tokens:
            request.pieces.append(Piece(request, index, [text], cost))
        else:
            last.texts.append(text)
            last.tokens += cost


def is_short(texts: Sequence[str], max_length: int) -> bool:
    """Return True if texts of one caller belong in the queue of short requests."""
    return len(texts) <= SHORT_TOKENS and sum(_tokens(text, max_length) for text in texts) <= SHORT_TOKENS


def _tokens(text: str, max_length: int) -> int:
    return min(len(text) + 8, max_length)


class RequestQueue:
    """Waiting requests, first come first served, one piece per turn so that a long one does not delay others.

    Not safe for threads; its owner holds a lock.

    Args:
        limit: Maximum number of waiting texts.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.texts = 0
        self._requests: deque[EncodeRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: EncodeRequest) -> None:
        """Queue a request; accept one that exceeds the limit alone only if nothing else waits.

        Raises:
            QueueFull: Too many texts wait.
        """
        count = request.waiting
        if self.texts and self.texts + count > self.limit:
            raise QueueFull(
                f"The queue has no room for {count} more texts ({self.texts} of {self.limit} are waiting). "
                "Retry later."
            )
        self._requests.append(request)
        self.texts += count

    def clear(self) -> list[EncodeRequest]:
        """Remove and return all requests."""
        requests = list(self._requests)
        self._requests.clear()
        self.texts = 0
        return requests

    def take(self, max_texts: int, max_tokens: int) -> tuple[list[Piece], list[EncodeRequest]]:
        """Return pieces that make a batch (one prompt, at least one piece if any waits), and late requests.

        Cancelled and failed requests leave the queue. A request's future is running once a piece of it is
        taken.
        """
        batch: list[Piece] = []
        late: list[EncodeRequest] = []
        others: list[EncodeRequest] = []
        texts = tokens = 0
        while self._requests:
            request = self._requests.popleft()
            if request.late and not request.answered:
                late.append(request)
            if request.late or request.answered or request.future.cancelled():
                self.texts -= request.waiting
                request.begin()  # notifies those who wait for a cancelled future
                continue
            piece = request.pieces[0]
            if batch and request.prompt_name != batch[0].request.prompt_name:
                others.append(request)
                continue
            if batch and (texts + len(piece.texts) > max_texts or tokens + piece.tokens > max_tokens):
                self._requests.appendleft(request)
                break
            if not request.begin():
                self.texts -= request.waiting
                continue
            batch.append(request.pieces.popleft())
            texts += len(piece.texts)
            tokens += piece.tokens
            self.texts -= len(piece.texts)
            if request.pieces:
                self._requests.append(request)
        self._requests.extendleft(reversed(others))
        return batch, late


class RequestQueues:
    """A queue for short requests and one for long ones, which take turns: a batch never holds both.

    A short request waits for at most one batch of long ones, however many these are. Long requests get at
    least every second batch.

    Not safe for threads; its owner holds a lock.

    Args:
        limit: Maximum number of waiting texts in each queue.
    """

    def __init__(self, limit: int) -> None:
        self.short, self.long = RequestQueue(limit), RequestQueue(limit)
        self._long_next = False

    def __len__(self) -> int:
        return len(self.short) + len(self.long)

    @property
    def texts(self) -> int:
        """Return the number of texts that wait in both."""
        return self.short.texts + self.long.texts

    def add(self, request: EncodeRequest) -> None:
        """Queue a request, see `RequestQueue.add`."""
        (self.short if request.tokens <= SHORT_TOKENS else self.long).add(request)

    def clear(self) -> list[EncodeRequest]:
        """Remove and return all requests."""
        return self.short.clear() + self.long.clear()

    def take(
        self, max_texts: int, max_tokens: int, long_tokens: int
    ) -> tuple[list[Piece], list[EncodeRequest]]:
        """Return the pieces that make a batch, and requests that are too late; see `RequestQueue.take`.

        Args:
            max_texts: Maximum number of texts in the batch.
            max_tokens: Maximum number of tokens in a batch of short requests.
            long_tokens: Maximum number of tokens in a batch of long requests.
        """
        late: list[EncodeRequest] = []
        for long in (True, False) if self._long_next else (False, True):
            queue = self.long if long else self.short
            batch, late_requests = queue.take(max_texts, long_tokens if long else max_tokens)
            late += late_requests
            if batch:
                self._long_next = not long
                return batch, late
        return [], late
