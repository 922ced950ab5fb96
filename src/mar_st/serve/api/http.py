"""Argument and result of a handler, and an endpoint that calls it without FastAPI's parsing.

With a small encoder it answers 1.4 times as many searches per second as FastAPI's routing with pydantic
responses (medians 542 and 392, on uvicorn's connections; `benchmarks/serve.py --app connections,stock`). With
an encoder of 305M parameters the difference is within the noise (22.6 and 22.5, 19.4 and 22.6 per second).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

import orjson

from mar_st.serve.errors import ApiError, bad, late

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from mar_st.serve.errors import Header

Handler: TypeAlias = "Callable[[ReceivedRequest], Awaitable[HttpResponse]]"

#: Key under which the gate stores the start time of a request in its scope.
STARTED_KEY = "mar.started"

_JSON: Header = (b"content-type", b"application/json")
_ALWAYS: tuple[Header, ...] = ((b"x-content-type-options", b"nosniff"),)
_NO_STORE: Header = (b"cache-control", b"no-store")

#: Maximum digits of a `Content-Length`.
_MAX_LENGTH_DIGITS = 20


@dataclass(slots=True)
class ReceivedRequest:
    """A request whose body has arrived.

    Attributes:
        body: The body; empty if none is read.
        started: Value of `time.monotonic()` when the head of the request had arrived.
        deadline: Value of `time.monotonic()` until which the client waits for a response.
        query: The query string, as received.
    """

    body: bytes
    started: float
    deadline: float
    query: bytes = b""

    def json(self) -> dict[str, Any]:
        """Return the body's JSON object; NaN, invalid UTF-8, lone surrogates and deep nesting are not JSON.

        Raises:
            ApiError: 400: the body is not a JSON object.
        """
        try:
            content = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise bad(
                f"The body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno}).",
                code="invalid_json",
            ) from None
        if not isinstance(content, dict):
            raise bad("The body must be a JSON object.", code="invalid_json")
        return content

    def parameter(self, name: str) -> str:
        """Return the value of a parameter of the query string.

        Raises:
            ApiError: 400: it is missing, empty, repeated, or not UTF-8.
        """
        try:
            values = parse_qs(self.query.decode("ascii"), errors="strict", max_num_fields=16).get(name, [])
        except ValueError:
            raise bad("The query string cannot be read; encode it as UTF-8 with percent signs.") from None
        if len(values) != 1:
            raise bad(f"This needs one parameter {name!r} in the query string.", name)
        return values[0]


@dataclass(slots=True)
class HttpResponse:
    """An answer.

    Attributes:
        body: Body of the response.
        status: HTTP status.
        headers: Additional headers; a `content-type` among them replaces that of JSON.
    """

    body: bytes
    status: int = 200
    headers: tuple[Header, ...] = ()

    async def send(self, send: Send) -> None:
        """Send it."""
        headers = [(b"content-length", str(len(self.body)).encode()), *_ALWAYS, *self.headers]
        names = [name for name, _ in self.headers]
        if b"content-type" not in names:
            headers.append(_JSON)
        if b"cache-control" not in names:
            headers.append(_NO_STORE)
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def as_json(value: object) -> bytes:
    """Return JSON of plain values and NumPy arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def error_reply(error: ApiError) -> HttpResponse:
    """Return the answer for an error."""
    return HttpResponse(error.body(), error.status, error.headers)


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """Return the body of a request whose `Content-Type` is JSON.

    The limit applies to received bytes, whatever `Content-Length` says. If `Content-Length` exceeds the
    limit, the request is refused before its body is read.

    Raises:
        ApiError: 415: not JSON, or compressed. 413: too large. 408: not received in time. 400: the client
            disconnected.
    """
    _check_fields(scope["headers"], limit)
    message = None
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                body: bytes = message.get("body", b"")
                if len(body) > limit:
                    raise _too_large(limit)
                return body
            parts, size = [], 0
            while True:
                if message["type"] != "http.request":
                    raise ApiError(
                        400, "disconnected", "The client went away before its request was complete."
                    )
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                if not message.get("more_body"):
                    return b"".join(parts)
                message = await receive()
    except TimeoutError:
        raise ApiError(
            408,
            "slow_body",
            f"The body did not arrive within {seconds:g} s.",
            headers=[(b"connection", b"close")],
        ) from None


def _check_fields(headers: Iterable[Header], limit: int) -> None:
    """Refuse a body that is too long, compressed or not JSON, by the header fields before it."""
    kind = b""
    for name, value in headers:
        # Python refuses to read a number of thousands of digits.
        if name == b"content-length" and (
            not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS or int(value) > limit
        ):
            raise _too_large(limit)
        if name == b"content-type":
            kind = value
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise ApiError(415, "encoded_body", "Send the body uncompressed, without Content-Encoding.")
    # A browser sends application/json to another site only if that site allows it, and this one never does.
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise ApiError(415, "not_json", "The body must be JSON: Content-Type: application/json.")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "body_too_large", f"The body may have {limit} bytes. Send less at a time.")


class HandlerEndpoint:
    """An ASGI endpoint that reads the body and calls a handler.

    FastAPI's own request handling (dependencies, exit stacks, validation of every element) costs several
    times as much as a handler here; only its routing is used.

    Args:
        handler: Function that returns the response.
        limit: Maximum bytes of the body; `None` if no body is read.
        body_seconds: Time limit for receiving the body.
        seconds: Time limit for the response, counted from the head of the request; `None` for no limit.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limit: int | None = None,
        body_seconds: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        self.handler, self.limit, self.body_seconds, self.seconds = handler, limit, body_seconds, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = b""
        if self.limit is not None:
            body = await read_body(scope, receive, self.limit, self.body_seconds)
        started: float = scope[STARTED_KEY]
        query: bytes = scope["query_string"]
        if self.seconds is None:
            await (await self.handler(ReceivedRequest(body, started, float("inf"), query))).send(send)
            return
        deadline = started + self.seconds
        try:
            # The clock of the event loop is time.monotonic() too.
            async with asyncio.timeout_at(deadline):
                reply = await self.handler(ReceivedRequest(body, started, deadline, query))
        except TimeoutError:
            raise late(self.seconds) from None
        await reply.send(send)
