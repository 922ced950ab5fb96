"""uvicorn's HTTP protocol with limits on what a connection may do before it has sent a request.

The head of a request has a time limit and a size limit. If all connections are taken, the one that has waited
longest without a request is closed. If requests come faster than the application can refuse them, they are
refused here, without an asyncio task for each.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mar_st.serve.connections.upgrades import feed
from mar_st.serve.errors import ApiError, too_many

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from mar_st.serve.connections.config import ServeConfig

#: Maximum bytes of the head of a request; the limit also applies to its trailers and its chunk extensions.
MAX_HEAD_BYTES = 64 * 1024

#: A head with this many fields or more is refused.
TOO_MANY_FIELDS = 256

#: Maximum bytes of a body that are read and discarded after its request was refused.
MAX_DISCARDED_BYTES = 64 * 1024 * 1024

#: Maximum requests of a connection that wait while its first request is answered; further ones are not read.
MAX_PIPELINED = 32

#: Seconds for which an idle connection stays open when the server stops, or when its socket has unread bytes.
LINGER_SECONDS = 0.5

#: Paths whose requests are refused before their bodies are read if the server is overloaded.
SHED_PATHS = frozenset({b"/search", b"/v1/embeddings"})

#: Path that returns a document by its id.
DOCUMENT_PATH = b"/document"


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    config: ServeConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guard = self.config.guard
        self._head = 0  # bytes received of the current head
        self._fields = 0  # bytes of the target and the fields of a head, or of trailers
        self._discarded = 0  # bytes of a body that is not read
        self._framing = 0  # bytes since the last byte of the body: chunk extensions and trailers
        self._body_open = False
        self.stopping = False
        self._reading_stopped = False  # nothing more is read: too many requests wait, or the server stops
        self._answer_unread = False  # the answer is complete, but its caller has not read enough of it
        self._running: RequestResponseCycle | None = None  # the request that is being answered
        self._refused: float | None = None  # Retry-After of this request, in seconds
        self._is_sibling = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a connection; if there are too many, close one that has no request."""
        super().connection_made(transport)
        if not self._is_sibling:
            self.guard.accept(self)
        if len(self.connections) > self.guard.limits.max_connections and not self.guard.make_room(self):
            self.refuse(
                ApiError(
                    503,
                    "too_many_connections",
                    "Too many connections. Try again later.",
                    headers=[(b"retry-after", b"1")],
                )
            )
            self.guard.count("refused")
            return
        self.guard.await_head(self)

    def sibling(self) -> GuardedProtocol:
        """Return the protocol of another connection to the same server."""
        protocol = type(self)(self.config, self.server_state, self.app_state, self.loop)
        protocol._is_sibling = True
        return protocol

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self.guard.forget(self)
        # uvicorn notifies only the last request; if several came at once, an earlier one is being answered.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read received data, within the limits."""
        if self._reading_stopped:
            return
        guard = self.guard
        if self._idle and self not in guard.awaiting_head:
            guard.await_head(self)
            self._head = 0
        in_body = self._body_open
        self._framing += len(data)
        self._parse(data)
        if in_body and self._body_open and self._framing > MAX_HEAD_BYTES and not self.transport.is_closing():
            guard.count("large_head")
            self.refuse(ApiError(431, "head_too_large", f"Trailers may have {MAX_HEAD_BYTES} bytes."))
            return
        if self not in guard.awaiting_head or self.transport.is_closing():
            return
        if self._body_open:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED_BYTES:
                guard.count("flood")
                self.transport.abort()
            return
        if in_body:  # the body has ended; at most the rest of this read belongs to the next head
            return
        self._head += len(data)
        if self._head > MAX_HEAD_BYTES:
            guard.count("large_head")
            self.refuse(
                ApiError(431, "head_too_large", f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
            )

    def _parse(self, data: bytes) -> None:
        """Pass data to the parser; requests that offer an upgrade are answered in HTTP/1.1."""
        self._unset_keepalive_if_required()
        try:
            feed(self, data)
        except httptools.HttpParserError:
            if self._fields > MAX_HEAD_BYTES or len(self.headers or ()) >= TOO_MANY_FIELDS:
                self.guard.count("large_head")
                part = "Trailers" if self._body_open else "The head of a request"
                message = f"{part} may have {MAX_HEAD_BYTES} bytes, and a head {TOO_MANY_FIELDS - 1} fields."
                self.refuse(ApiError(431, "head_too_large", message))
            elif self.headers and unknown_coding(*self.headers[-1]):
                message = "Send the body unencoded, or with Transfer-Encoding: chunked."
                self.refuse(ApiError(501, "unknown_coding", message))
            else:
                self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._fields = 0

    def on_url(self, url: bytes) -> None:
        """Receive a part of the target."""
        super().on_url(url)
        self._count(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header field; trailers are discarded."""
        self._count(name, value)
        if self._body_open or self._reading_stopped:
            return
        super().on_header(name, value)
        if len(self.headers) >= TOO_MANY_FIELDS:
            raise ValueError("too many fields")  # the parser stops
        if unknown_coding(*self.headers[-1]):
            raise ValueError("unknown transfer coding")

    def _count(self, *parts: bytes) -> None:
        """Count bytes of a head or of trailers; the parser stops if there are too many."""
        self._fields += sum(map(len, parts))
        if self._fields > MAX_HEAD_BYTES:
            raise ValueError("too many bytes")

    def on_headers_complete(self) -> None:
        """Handle the complete headers."""
        if self.parser.should_upgrade() or self._reading_stopped:
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            self._stop_reading()
            return
        self._body_open = True
        self._discarded = self._framing = self._fields = 0
        self._refused = self._overloaded()
        if self._refused is not None:
            self.guard.await_head(self)
            return
        if self.url[:1] not in (b"/", b"*"):
            self._take_host_of_target()
        self.guard.leave(self)
        self._unset_keepalive_if_required()  # set if an earlier one in the same packet was refused
        super().on_headers_complete()
        if self.stopping:
            self.cycle.keep_alive = False

    def _take_host_of_target(self) -> None:
        """If the target is a whole URL, use its host, not the header's (RFC 9112, section 3.2.2)."""
        target = httptools.parse_url(self.url)
        host = b"[%s]" % target.host if b":" in target.host else target.host  # it comes without its brackets
        host += b":%d" % target.port if target.port else b""
        self.headers[:] = [*(header for header in self.headers if header[0] != b"host"), (b"host", host)]

    def _stop_reading(self) -> None:
        """Read nothing more; the connection closes after its last pending response."""
        self._reading_stopped = True
        self.cycle.keep_alive = False
        self.guard.count("pipelined")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Handle the end of the body."""
        if self.parser.should_upgrade() or self._reading_stopped:
            return
        self._body_open = False
        self._head = 0
        if self._refused is not None:
            self._answer_busy(self._refused)
            return
        super().on_message_complete()
        if self.cycle.response_complete and self in self.guard.awaiting_head:
            self.guard.await_head(self)  # refused before its body arrived; the next head has the full time

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._framing = 0
        if self._refused is None and not self._reading_stopped:
            super().on_body(body)

    def _overloaded(self) -> float | None:
        """Return the seconds that the caller has to wait if this request is refused unread, else `None`."""
        if not self._idle or self.expect_100_continue:
            return None
        path, method = self.url.partition(b"?")[0], self.parser.get_method()
        if path == DOCUMENT_PATH and method == b"GET":
            return 1.0 if self.guard.too_many_reads(self) else None
        return self.guard.overloaded(len(self.tasks)) if path in SHED_PATHS and method == b"POST" else None

    def _answer_busy(self, seconds: float) -> None:
        """Answer 429, without a task, and become idle."""
        self._refused = None
        error = too_many(seconds)
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._write(error, closing=not keep_alive or self.stopping)
        if self.guard.metrics is not None:
            self.guard.metrics.refused(self.url.partition(b"?")[0].decode(), error)
        if not self.transport.is_closing():
            super().on_response_complete()
            self.guard.mark_idle(self)

    def on_response_complete(self) -> None:
        """Handle the end of an answer.

        The caller must read most of it before the next request is begun, so that no work is done for callers
        who do not read their answers.
        """
        self.guard.reading.discard(self)
        if self.flow.write_paused and not self.transport.is_closing():
            self._answer_unread = True
            self.flow.pause_reading()
            return
        super().on_response_complete()
        self.guard.send(self)
        if self._idle and not self.transport.is_closing():
            self.guard.mark_idle(self)

    def pause_writing(self) -> None:
        """Handle a caller who does not read the answer."""
        super().pause_writing()
        self.guard.send(self, stopping=self.stopping)

    def resume_writing(self) -> None:
        """Handle a caller who has read most of the answer."""
        super().resume_writing()
        if self._answer_unread:
            self._answer_unread = False
            self.on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle too long, or whose caller does not read the answer.

        A busy event loop checks its timers before its sockets, so a request that came in time may still be
        unread.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        elif self._idle and self.unread():
            self.timeout_keep_alive_task = self.loop.call_later(
                LINGER_SECONDS, self.timeout_keep_alive_handler
            )
            return
        super().timeout_keep_alive_handler()

    def unread(self) -> bool:
        """Return True if the socket holds data that the event loop has not read yet."""
        if self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def shutdown(self) -> None:
        """Finish the current request, or wait `LINGER_SECONDS` for one that is on its way, then close.

        Requests that wait behind the current one are dropped, as if they had not been read.
        """
        self.stopping = True
        self.guard.stop_accepting()
        self.guard.send(self, stopping=True)
        if self.pipeline and self._running is not None:
            self.pipeline.clear()
            self.cycle, self._reading_stopped = self._running, True
        if self._idle:
            self.loop.call_later(LINGER_SECONDS, self._shut_down)
        else:
            super().shutdown()

    def _shut_down(self) -> None:
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with status 400, without quoting it."""
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
        self.guard.send(self, stopping=self.stopping)

    @property
    def _idle(self) -> bool:
        """Return True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete


def unknown_coding(name: bytes, value: bytes) -> bool:
    """Return True for a header of a transfer coding other than chunked, which the parser would not decode.

    Source: RFC 9112, section 6.1.
    """
    return name == b"transfer-encoding" and value.strip().lower() != b"chunked"
