"""uvicorn's HTTP protocol with limits on what a connection may do before it has sent a request.

uvicorn ends a connection that rests after an answer, but neither one that never says anything nor one that
sends its head a byte at a time, it takes heads of any size, and its limit on connections turns away the next
caller instead of the silent ones. Here a connection has a time for its head and a size; where all connections
are taken, the one that has waited longest without a request makes room. And where requests come faster than
the application could even refuse them, they are refused here, without a task for each.
"""

from __future__ import annotations

import logging
import select
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mar_st.serve.errors import ApiError, too_many
from mar_st.serve.upgrades import feed

if TYPE_CHECKING:
    import asyncio
    import socket

    from mar_st.serve.generations import Generations
    from mar_st.serve.metrics import Metrics

_LOG = logging.getLogger(__name__)

_LINE = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
#: One line per bad request would let anyone fill the log; what the server itself does is told by us.
_LEVELS = {"mar_st": logging.INFO, "uvicorn.error": logging.WARNING}

#: Bytes of the head of a request, and bytes of an unwanted body that are read past after its refusal.
HEAD, PAST = 64 * 1024, 64 * 1024 * 1024

#: Seconds for which a resting connection is still read when the server stops, or when it holds unread bytes.
LINGER = 0.5

#: Paths whose requests may be refused before their bodies are read; and how many requests are in the hands of
#: the event loop (begun, and in no queue) when they are.
SHED, HANDS = frozenset({b"/search", b"/v1/embeddings"}), 128

#: Connections that are accepted in one turn of the event loop: by the only worker; by one of several, which
#: is to leave some to the others.
ACCEPTED, SHARED = 256, 16

#: Resting connections that are looked at for one to close; of most nothing is unread.
TRIED = 16


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections.

    Attributes:
        most: Open connections.
        head_seconds: Time for the head of a request.
    """

    most: int = 4096
    head_seconds: float = 10.0


class ServeConfig(Config):
    """uvicorn's configuration with our limits; one per process, pickled to workers.

    Args:
        limits: Limits on connections.
        **options: Those of uvicorn.
    """

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(http=GuardedProtocol, ws="none", **options)
        self.guard = Guard(limits)

    def configure_logging(self) -> None:
        """Log to the standard error, with time and process.

        uvicorn would have `logging.config` do it, which closes every handler of the process first, and with
        them what the handlers of others write to.
        """
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_LINE))
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [handler], False
            logger.setLevel(level)

    def load(self) -> None:
        """Make the application; it counts what is closed or refused here, and knows when it has too much."""
        super().load()
        state = self.loaded_app.state
        self.guard.metrics, self.guard.generations = state.metrics, state.generations


class Guard:
    """Connections without a request: those that owe a head, and those that rest after an answer.

    Args:
        limits: Limits on connections.

    Attributes:
        metrics: Where closed connections and refused requests are counted, once there is an application.
        generations: Its engine, likewise.
        listening: The socket that connections come from.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        # Dictionaries keep their order, so the first is the one that has waited longest.
        self.owing: dict[GuardedProtocol, float] = {}
        self.resting: dict[GuardedProtocol, None] = {}
        self._sweeping = False
        self.metrics: Metrics | None = None
        self.generations: Generations | None = None
        self.listening: socket.socket | None = None
        self._accepting: set[asyncio.Task[Any]] = set()

    def accept(self, first: GuardedProtocol) -> None:
        """Accept the connections that came with another one.

        libuv accepts one per turn of its event loop. Where a turn is long, because there is much to answer, a
        new caller would wait longer for its connection than for its answer.
        """
        if self.listening is None:
            return
        for _ in range(ACCEPTED if first.config.workers == 1 else SHARED):
            try:
                accepted, _address = self.listening.accept()
            except OSError:  # none waits, or there are no more files, or the server stops
                return
            accepted.setblocking(False)
            work = first.loop.connect_accepted_socket(first.sibling, accepted)
            task = first.loop.create_task(work)
            self._accepting.add(task)
            task.add_done_callback(self._accepted)

    def _accepted(self, task: asyncio.Task[Any]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("a connection could not be taken: %s", task.exception())

    def stop_accepting(self) -> None:
        """Close the listening socket, of which a worker has a copy here."""
        if self.listening is not None:
            self.listening.close()

    def owe(self, connection: GuardedProtocol) -> None:
        """A connection owes the head of a request from now on."""
        self.resting.pop(connection, None)
        self.owing.pop(connection, None)
        self.owing[connection] = connection.loop.time() + self.limits.head_seconds
        if not self._sweeping:
            self._sweeping = True
            connection.loop.call_later(1.0, self._sweep, connection.loop)

    def rest(self, connection: GuardedProtocol) -> None:
        """A connection rests; uvicorn's own timer ends it."""
        self.owing.pop(connection, None)
        self.resting[connection] = None

    def leave(self, connection: GuardedProtocol) -> None:
        """A connection has a request, or is gone."""
        self.owing.pop(connection, None)
        self.resting.pop(connection, None)

    def make_room(self, newcomer: GuardedProtocol) -> bool:
        """Close the connection that has waited longest; false if all have a request."""
        for waiting in (self.owing, self.resting):
            for connection in islice(waiting, TRIED):
                if connection is not newcomer and (waiting is self.owing or not connection.unread()):
                    self._end(connection, "crowded")
                    return True
        return False

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self.owing:
            connection, until = next(iter(self.owing.items()))
            if until > now:
                break
            connection.refuse(ApiError(408, "slow_head", "The head of the request did not arrive in time."))
            self._end(connection, "silent")
        self._sweeping = bool(self.owing)
        if self._sweeping:
            loop.call_later(1.0, self._sweep, loop)

    def _end(self, connection: GuardedProtocol, reason: str) -> None:
        self.leave(connection)
        connection.transport.close()
        self.count(reason)

    def count(self, reason: str) -> None:
        """Count a connection that was closed."""
        if self.metrics is not None:
            self.metrics.dropped.labels(reason).inc()

    def overloaded(self, requests: int) -> float | None:
        """Seconds to wait if the queues are full and the event loop cannot even refuse in time, else `None`.

        Args:
            requests: Requests that were begun and are not answered.
        """
        if self.generations is None or requests < HANDS:
            return None
        engine = self.generations.current
        wait = engine.full()
        return wait if wait is not None and requests - engine.waiting > HANDS else None


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    config: ServeConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guard = self.config.guard
        self._head = 0  # bytes since the connection owes a head
        self._past = 0  # bytes of a body that nobody wants
        self._body_open = False
        self._stopping = False
        self._refused: float | None = None  # seconds that the caller of this request is told to wait
        self._is_sibling = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, at the cost of a waiting one where there are too many."""
        super().connection_made(transport)
        if not self._is_sibling:
            self.guard.accept(self)
        if len(self.connections) > self.guard.limits.most and not self.guard.make_room(self):
            self.refuse(ApiError(503, "too_many_connections", "Too many connections. Try again later."))
            self.guard.count("refused")
            return
        self.guard.owe(self)

    def sibling(self) -> GuardedProtocol:
        """The protocol of another connection to the same server."""
        made = type(self)(self.config, self.server_state, self.app_state, self.loop)
        made._is_sibling = True
        return made

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.guard.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, within the limits."""
        guard = self.guard
        if self._resting and self not in guard.owing:
            guard.owe(self)
            self._head = 0
        in_body = self._body_open
        self._parse(data)
        if self not in guard.owing or self.transport.is_closing():
            return
        if self._body_open:
            self._past += len(data)
            if self._past > PAST:
                guard.count("flood")
                self.transport.abort()
            return
        if in_body:  # the end of that body; of the next head there is a part of one read here at most
            return
        self._head += len(data)
        if self._head > HEAD:
            guard.count("large_head")
            self.refuse(ApiError(431, "head_too_large", f"The head of a request may have {HEAD} bytes."))

    def _parse(self, data: bytes) -> None:
        """Give data to the parser; requests that offer another protocol are answered in this one."""
        self._unset_keepalive_if_required()
        try:
            feed(self.parser, data, lambda: (self.url, self.headers))
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        """The head is there."""
        if self.parser.should_upgrade():
            return
        self._body_open = True
        self._past = 0
        self._refused = self._overloaded()
        if self._refused is not None:
            self.guard.owe(self)
            return
        self.guard.leave(self)
        self._unset_keepalive_if_required()  # set, if one before it in the same packet was refused
        super().on_headers_complete()
        if self._stopping:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The body is there, wanted or not."""
        if self.parser.should_upgrade():
            return
        self._body_open = False
        self._head = 0
        if self._refused is not None:
            self._turn_away(self._refused)
            return
        super().on_message_complete()
        if self.cycle.response_complete and self in self.guard.owing:
            self.guard.owe(self)  # it was refused before it was there; the next head has its full time

    def on_body(self, body: bytes) -> None:
        """A part of the body is there."""
        if self._refused is None:
            super().on_body(body)

    def _overloaded(self) -> float | None:
        """Seconds that the caller has to wait if this request is refused unread, else `None`."""
        wait = self.guard.overloaded(len(self.tasks))
        if wait is None or not self._resting or self.expect_100_continue:
            return None
        return wait if self.url.partition(b"?")[0] in SHED and self.parser.get_method() == b"POST" else None

    def _turn_away(self, seconds: float) -> None:
        """Answer 429, without a task, and rest."""
        self._refused = None
        error = too_many(seconds)
        lasts = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._write(error, closing=not lasts or self._stopping)
        if self.guard.metrics is not None:
            self.guard.metrics.refused(self.url.partition(b"?")[0].decode(), error)
        if not self.transport.is_closing():
            super().on_response_complete()
            self.guard.rest(self)

    def on_response_complete(self) -> None:
        """The answer is out."""
        super().on_response_complete()
        if self._resting and not self.transport.is_closing():
            self.guard.rest(self)

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that rested too long, or that does not read its answer.

        A busy event loop looks at its clock before it looks at its sockets: a request that came in time may
        lie there unread.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        elif self._resting and self.unread():
            self.timeout_keep_alive_task = self.loop.call_later(LINGER, self.timeout_keep_alive_handler)
            return
        super().timeout_keep_alive_handler()

    def unread(self) -> bool:
        """Whether something came that the event loop has not handed over."""
        if self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def shutdown(self) -> None:
        """The server stops: finish the request, or wait a moment for one that is on its way."""
        self._stopping = True
        self.guard.stop_accepting()
        if self._resting:
            self.loop.call_later(LINGER, self._end_rest)
        else:
            super().shutdown()

    def _end_rest(self) -> None:
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; never with what came."""
        self.refuse(ApiError(400, "invalid_http", msg))

    def refuse(self, error: ApiError) -> None:
        """Answer with an error outside of a request, and close."""
        self.guard.leave(self)
        self._write(error, closing=True)

    def _write(self, error: ApiError, *, closing: bool) -> None:
        body = error.body()
        headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
            *error.headers,
        ]
        if closing:
            headers.append((b"connection", b"close"))
        lines = [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        if closing:
            self.transport.close()

    @property
    def _resting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete
