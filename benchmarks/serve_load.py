"""The load of `benchmarks/serve.py`: HTTP/1.1 over many connections, cheap enough to run beside the server.

A closed loop (each connection asks again as soon as it is answered) finds the saturation. An open loop
(arrivals by a Poisson process, whatever the server does) measures latency; it counts from the planned
arrival, so that a stalled server does not slow down its own measurement; where a load is more than its
connections can carry, what waits here for a connection is told apart (`p99_sent_ms`, `unsent`).
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field

import uvloop

#: Seconds that a connection may rest and be used again. A server may close it at any moment after its own
#: limits (10 s without a first request, 60 s between two), also while a request is on its way; clients keep
#: well below that.
IDLE_SECONDS = 5.0

_IDS = re.compile(rb'"id":"([^"]*)","score":(-?[0-9.e+-]+)')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass
class Question:
    """A request and the ids and scores that must be answered."""

    request: bytes
    ids: list[str]
    scores: list[float]

    def right(self, body: bytes) -> bool:
        """Return True if the answer holds the expected hits; hits with equal scores may swap places."""
        hits = _IDS.findall(body)
        if [name.decode() for name, _ in hits] == self.ids:
            return True
        scores = [float(score) for _, score in hits]
        return len(hits) == len(self.ids) and all(
            abs(mine - theirs) < 1e-4 for mine, theirs in zip(scores, self.scores, strict=True)
        )


@dataclass
class Result:
    """Result of a load test."""

    seconds: float = 0.0
    statuses: Counter = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)  # of answers with 200, from the planned arrival
    served: list[float] = field(default_factory=list)  # the same from when the request was sent
    wrong: int = 0
    lost: int = 0  # sent, never answered
    unsent: int = 0  # still waiting for a connection at the end

    def summary(self) -> dict:
        ordered = sorted(self.latencies)

        def at(share: float) -> float | None:
            return (
                round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
                if ordered
                else None
            )

        return {
            "answers_per_s": round(len(ordered) / self.seconds, 1),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "max_ms": at(1.0),
            "p99_over_p50": round(at(0.99) / at(0.5), 2) if ordered else None,
            "p99_sent_ms": round(1000 * sorted(self.served)[int(0.99 * len(self.served))], 2)
            if self.served else None,
            "wrong": self.wrong, "lost": self.lost, "unsent": self.unsent, "seconds": round(self.seconds, 1),
        }  # fmt: skip


class Connection(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: asyncio.Transport | None = None
        self.question: Question | None = None
        self.began = self.sent = self.rested = 0.0
        self.closing = False  # the server said that it closes
        self._parts: list[bytes] = []
        self._missing = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, question: Question, began: float) -> None:
        self.question, self.began, self.sent = question, began, time.monotonic()
        self._parts, self._missing = [], -1
        self.transport.write(question.request)

    def data_received(self, data: bytes) -> None:
        if self.question is None:  # a last word of the server, which closes now
            return
        self._parts.append(data)
        if self._missing < 0:
            head, sign, rest = b"".join(self._parts).partition(b"\r\n\r\n")
            if not sign:
                return
            self._missing = int(_LENGTH.search(head)[1]) - len(rest)
            self.closing = b"\r\nconnection: close" in head.lower()
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            answer = b"".join(self._parts)
            question, self.question = self.question, None
            self.load.answered(self, question, int(answer[9:12]), answer, time.monotonic() - self.began)

    def connection_lost(self, _: Exception | None) -> None:
        if self.question is not None:
            self.load.result.lost += 1
        self.load.gone(self)


class Load:
    """Asks a server for some seconds.

    Args:
        port: Where it listens.
        questions: What to ask, in turn.
        connections: Open at once; of an open loop at most.
        rate: Requests per second of an open loop; `None` for a closed one.
    """

    def __init__(
        self, port: int, questions: list[Question], connections: int, rate: float | None = None
    ) -> None:
        self.port, self.questions, self.most, self.rate = port, questions, connections, rate
        self.result = Result()
        self.stopped = False
        self._turn = 0
        self._open = 0
        self._idle: deque[Connection] = deque()  # the longest at rest first
        self._waiting: deque[float] = deque()
        self._busy = 0

    def run(self, seconds: float) -> Result:
        return uvloop.run(self._run(seconds))

    async def _run(self, seconds: float) -> Result:
        began = time.monotonic()
        if self.rate is None:
            for _ in range(self.most):
                self._next(await self._connect(), time.monotonic())
            began = time.monotonic()
            await asyncio.sleep(seconds)
        else:
            await self._arrivals(began + seconds)
            while self._waiting and time.monotonic() < began + seconds + 15:
                await asyncio.sleep(0.01)
        self.stopped = True
        self.result.seconds = time.monotonic() - began
        end = time.monotonic() + 15
        while self._busy and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self.rate is not None:  # all that arrived counts, so the time until the last answer does
            self.result.seconds = time.monotonic() - began
        self.result.lost += self._busy
        self.result.unsent = len(self._waiting)
        return self.result

    async def _arrivals(self, end: float) -> None:
        due = time.monotonic()
        while due < end:
            pause = due - time.monotonic()
            if pause > 0.0005:
                await asyncio.sleep(pause)
            while self._idle and (
                time.monotonic() - self._idle[0].rested > IDLE_SECONDS or self._idle[0].transport.is_closing()
            ):
                self._idle.popleft().transport.close()
            if self._idle:
                self._next(self._idle.pop(), due)
            else:
                self._waiting.append(due)
                if self._open < self.most:
                    asyncio.get_running_loop().create_task(self._more())
            due += random.expovariate(self.rate)

    async def _more(self) -> None:
        connection = await self._connect()
        if self.rate is None:
            self._next(connection, time.monotonic())
        elif self._waiting:
            self._next(connection, self._waiting.popleft())
        else:
            self._rest(connection)

    def _rest(self, connection: Connection) -> None:
        connection.rested = time.monotonic()
        self._idle.append(connection)

    async def _connect(self) -> Connection:
        self._open += 1
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        return connection

    def _next(self, connection: Connection, began: float) -> None:
        self._turn += 1
        self._busy += 1
        connection.ask(self.questions[self._turn % len(self.questions)], began)

    def answered(
        self, connection: Connection, question: Question, status: int, answer: bytes, seconds: float
    ) -> None:
        self._busy -= 1
        result = self.result
        result.statuses[status] += 1
        if status == 200:
            if not self.stopped or self.rate is not None:
                result.latencies.append(seconds)
                result.served.append(time.monotonic() - connection.sent)
            if not question.right(answer):
                result.wrong += 1
        if connection.closing:
            connection.transport.close()
            if not self.stopped and (self.rate is None or self._waiting):
                asyncio.get_running_loop().create_task(self._more())
            return
        if self.stopped:
            return
        if self.rate is None:
            if status == 429:  # as a client would that minds Retry-After, only sooner
                asyncio.get_running_loop().call_later(0.05, self._next, connection, time.monotonic() + 0.05)
            else:
                self._next(connection, time.monotonic())
        elif self._waiting:
            self._next(connection, self._waiting.popleft())
        else:
            self._rest(connection)

    def gone(self, connection: Connection) -> None:
        self._open -= 1
        if connection.question is not None:
            self._busy -= 1
        if connection in self._idle:
            self._idle.remove(connection)


def ask_all(
    port: int, questions: list[Question], connections: int, seconds: float, rate: float | None
) -> Result:
    """Run a load; for use in a process of its own."""
    return Load(port, questions, connections, rate).run(seconds)
