"""Limits on open connections, and timeouts of clients that send no request or do not read their response."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from mar_st.serve.engine.reading import MAX_READS
from mar_st.serve.errors import ApiError

if TYPE_CHECKING:
    import asyncio
    import socket

    from mar_st.serve.connections.protocol import GuardedProtocol
    from mar_st.serve.engine.generations import Generations
    from mar_st.serve.metrics import Metrics

_LOG = logging.getLogger(__name__)

#: If the queues are full and more requests than this are in progress outside of them, new requests are
#: refused before their bodies are read.
MAX_IN_PROGRESS = 128

#: Maximum connections that the only worker of a server accepts in one turn of its event loop.
ACCEPTS_ALONE = 256

#: The same for one of several workers. The maximum is small, so that the other workers get their share.
ACCEPTS_SHARED = 16

#: To close a connection that has no request, look at this many of those that have waited longest, until one
#: has no unread data in its socket.
MAX_CANDIDATES = 16

#: Bytes of its response that a client has to read within the time limit, or the rest if fewer are unsent.
MIN_READ_BYTES = 64 * 1024

#: Maximum of that time limit, in seconds, while the server stops.
STOPPING_SEND_SECONDS = 3.0


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections.

    Attributes:
        max_connections: Maximum number of open connections.
        head_seconds: Time limit for the head of a request.
        send_seconds: Time limit for a client to read `MIN_READ_BYTES` of its response, or the rest of it.
    """

    max_connections: int = 1024
    head_seconds: float = 10.0
    send_seconds: float = 10.0


class Guard:
    """Watches the connections of a process and closes those that exceed a limit.

    These are connections that wait for the head of their first request, idle ones, and those with a response
    that the client has not read.

    Args:
        limits: Limits on connections.

    Attributes:
        metrics: Counters of closed connections and refused requests; set when the application exists.
        generations: The application's engine; set when the application exists.
        reading: Connections whose request asks for a document by its id.
        listening: The listening socket.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # Dictionaries keep their order, so the first is the one that has waited longest.
        self.awaiting_head: dict[GuardedProtocol, float] = {}
        self.idle: dict[GuardedProtocol, None] = {}
        # Deadline of each, and the number of unsent bytes of its answer when the deadline was set.
        self.sending: dict[GuardedProtocol, tuple[float, int]] = {}
        self.reading: set[GuardedProtocol] = set()
        self._sweeping = False
        self.metrics: Metrics | None = None
        self.generations: Generations | None = None
        self.listening: socket.socket | None = None
        self._accepting: set[asyncio.Task[Any]] = set()

    def accept(self, first: GuardedProtocol) -> None:
        """Accept further waiting connections after the first one of this turn of the event loop.

        libuv accepts one per turn of its event loop. If many requests make a turn long, a new caller would
        wait longer for its connection than for its answer.
        """
        if self.listening is None:
            return
        for _ in range(ACCEPTS_ALONE if first.config.workers == 1 else ACCEPTS_SHARED):
            try:
                accepted, _address = self.listening.accept()
            except OSError:  # none is waiting, or file descriptors are used up, or the server stops
                return
            accepted.setblocking(False)
            work = first.loop.connect_accepted_socket(first.sibling, accepted)
            task = first.loop.create_task(work)
            self._accepting.add(task)
            task.add_done_callback(self._accepted)

    def _accepted(self, task: asyncio.Task[Any]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("a connection could not be accepted: %s", task.exception())

    def stop_accepting(self) -> None:
        """Close this worker's copy of the listening socket."""
        if self.listening is not None:
            self.listening.close()

    def await_head(self, connection: GuardedProtocol) -> None:
        """Start the time limit for the head of a connection's next request."""
        self.idle.pop(connection, None)
        self.awaiting_head.pop(connection, None)
        self.awaiting_head[connection] = connection.loop.time() + self.limits.head_seconds
        self._begin(connection.loop)

    def mark_idle(self, connection: GuardedProtocol) -> None:
        """Mark a connection as idle; uvicorn's own timer closes it."""
        self.awaiting_head.pop(connection, None)
        self.idle[connection] = None

    def send(self, connection: GuardedProtocol, *, stopping: bool = False) -> None:
        """Start the time limit for a client to read the data that was written to its connection."""
        unsent = connection.transport.get_write_buffer_size()
        if unsent:
            seconds = self.limits.send_seconds
            if stopping:
                seconds = min(STOPPING_SEND_SECONDS, seconds)
            self.sending[connection] = (connection.loop.time() + seconds, unsent)
            self._begin(connection.loop)

    def forget(self, connection: GuardedProtocol) -> None:
        """Forget a closed connection."""
        self.leave(connection)
        self.reading.discard(connection)
        self.sending.pop(connection, None)

    def leave(self, connection: GuardedProtocol) -> None:
        """Stop watching a connection that has a request."""
        self.awaiting_head.pop(connection, None)
        self.idle.pop(connection, None)

    def make_room(self, newcomer: GuardedProtocol) -> bool:
        """Close the connection that has waited longest; return False if all have a request.

        A connection whose socket has unread data is not closed: if hundreds of clients connect in one turn of
        the event loop, their requests are unread for a while.
        """
        for waiting in (self.awaiting_head, self.idle):
            for connection in islice(waiting, MAX_CANDIDATES):
                if connection is not newcomer and not connection.unread():
                    self._end(connection, "crowded")
                    return True
        return False

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the watched connections once a second."""
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(1.0, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self.awaiting_head:
            connection, until = next(iter(self.awaiting_head.items()))
            if until > now:
                break
            connection.refuse(ApiError(408, "slow_head", "The head of the request did not arrive in time."))
            self._end(connection, "silent")
        for connection, (until, before) in list(self.sending.items()):
            unsent = connection.transport.get_write_buffer_size()
            if not unsent:
                del self.sending[connection]
            elif until <= now and unsent > max(0, before - MIN_READ_BYTES):
                self.forget(connection)
                connection.transport.abort()
                self.count("unread")
            elif until <= now:
                self.send(connection, stopping=connection.stopping)
        self._sweeping = False
        if self.awaiting_head or self.sending:
            self._begin(loop)

    def _end(self, connection: GuardedProtocol, reason: str) -> None:
        self.leave(connection)
        connection.transport.close()
        self.count(reason)

    def count(self, reason: str) -> None:
        """Count a connection that was closed."""
        if self.metrics is not None:
            self.metrics.dropped.labels(reason).inc()

    def too_many_reads(self, connection: GuardedProtocol) -> bool:
        """Return True if `MAX_READS` documents are requested already; else count one more.

        Requests are counted here since hundreds may come in one turn of the event loop, before any is begun.
        """
        if len(self.reading) >= MAX_READS:
            return True
        self.reading.add(connection)
        return False

    def overloaded(self, requests: int) -> float | None:
        """Return seconds to wait if queues are full and even refusals would be late, else `None`.

        Args:
            requests: Requests that have started and have no response yet.
        """
        if self.generations is None or requests < MAX_IN_PROGRESS:
            return None
        engine = self.generations.current
        wait = engine.full()
        return wait if wait is not None and requests - engine.waiting > MAX_IN_PROGRESS else None
