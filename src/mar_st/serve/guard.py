"""Checks of every request before the application sees it, and the one form of errors."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from mar_st.errors import MarError
from mar_st.online.batcher import DeadlinePassed, QueueFull
from mar_st.serve.settings import allowed_hosts

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mar_st.serve.metrics import Metrics
    from mar_st.serve.settings import Keys, ServeSettings

_LOG = logging.getLogger(__name__)

#: `error.type` by status, as OpenAI's clients expect it.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}

#: Code and message of statuses that the router gives.
_ROUTER = {
    404: ("no_such_path", "There is no such path; see /openapi.json."),
    405: ("method_not_allowed", "This path does not accept that method; see /openapi.json."),
}

RELOAD = "/admin/reload"

#: Maximum bytes of a body.
MAX_BODY = 4 << 20


class ApiError(HTTPException):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        code: Short name of the error, also the label `kind` of the metric `mar_errors_total`.
        message: What was expected; it never quotes texts of the request.
        param: The invalid field, if one is invalid.
        headers: Additional headers of the response.
    """

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: Any = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code, self.param = code, param

    def response(self) -> Response:
        """Return the answer, in the form that OpenAI's clients read."""
        kind = _TYPES.get(self.status_code, "invalid_request_error")
        error = {"message": self.detail, "type": kind, "param": self.param, "code": self.code}
        return as_json({"error": error}, self.status_code, self.headers)


def bad(message: str, param: str | None = None, code: str = "invalid_request") -> ApiError:
    """Return the 400 of an invalid request."""
    return ApiError(400, code, message, param)


def as_json(content: object, status: int = 200, headers: Any = None) -> Response:
    """Return a response of plain values and NumPy arrays."""
    common = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=str)
    return Response(body, status, {**common, **(headers or {})}, media_type="application/json")


class Guard:
    """ASGI middleware: hosts, keys, sizes, time limits, errors and metrics.

    Args:
        app: The application.
        settings: Limits.
        keys: Keys of callers.
        metrics: Counts requests.
        public: Paths that need no key.
        paths: All paths; others are "other" in metrics.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        keys: Keys,
        metrics: Metrics,
        public: Collection[str],
        paths: Collection[str],
    ) -> None:
        self.app, self.settings, self.keys, self.metrics = app, settings, keys, metrics
        self.public, self.paths, self.hosts = public, paths, allowed_hosts(settings, keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, path, status, size = time.monotonic(), scope["path"], 0, 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                raise _too_large()
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check(scope)
            async with asyncio.timeout(None if path == RELOAD else self.settings.timeout):
                await self.app(scope, limited, watched)
        except Exception as error:
            refusal = self._explained(error)
            self.metrics.errors.labels(refusal.code).inc()
            if not status:  # otherwise uvicorn closes the connection
                await refusal.response()(scope, receive, watched)
        finally:
            known = path if path in self.paths else "other"
            self.metrics.answered(known, status, time.monotonic() - started)

    def _check(self, scope: Scope) -> None:
        """Refuse a request by its head.

        Raises:
            ApiError: The host, the key, the size or the type of the body is not accepted.
        """
        headers, path = dict(scope["headers"]), scope["path"]
        if self.hosts is not None and _host_name(headers.get(b"host", b"")) not in self.hosts:
            raise ApiError(400, "unknown_host", "Without API keys this server answers to localhost only.")
        if path == RELOAD and not self.keys:
            raise ApiError(403, "no_api_keys", "This path needs a server that was started with API keys.")
        if self.keys and path not in self.public and not self.keys.admit(headers):
            challenge = {"www-authenticate": "Bearer"}
            message = "This needs an API key: Authorization: Bearer KEY."
            raise ApiError(401, "invalid_api_key", message, headers=challenge)
        if scope["method"] == "POST" and path != RELOAD:
            # A browser sends JSON to another site only if that site allows it: those of `cors`.
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise ApiError(415, "not_json", "The body must be JSON: Content-Type: application/json.")
            if int(headers.get(b"content-length", b"0")) > MAX_BODY:
                raise _too_large()

    def _explained(self, error: Exception) -> ApiError:
        """Return the answer for any exception."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, HTTPException):
            code, message = _ROUTER.get(error.status_code, ("invalid_json", "The request cannot be read."))
            return ApiError(error.status_code, code, message, headers=error.headers)
        if isinstance(error, RequestValidationError | ValidationError):
            return _invalid(error)
        if isinstance(error, QueueFull):
            after = {"retry-after": str(max(1, round(error.seconds)))}
            return ApiError(429, "overloaded", str(error), headers=after)
        if isinstance(error, DeadlinePassed | TimeoutError):
            seconds = f"{self.settings.timeout:g}"
            return ApiError(504, "timeout", f"There was no answer within {seconds} s. Try again later.")
        if isinstance(error, MarError):
            return bad(str(error))
        # Neither the message of the exception nor any value is logged: both may hold the text of a query.
        frames = traceback.extract_tb(error.__traceback__)[:-9:-1]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
        _LOG.error("%s in a request, at %s", type(error).__name__, places)
        return ApiError(500, "internal", "Internal server error; the server's log says where.")


def _too_large() -> ApiError:
    return ApiError(413, "body_too_large", f"The body may have {MAX_BODY} bytes. Send less at a time.")


def _invalid(error: RequestValidationError | ValidationError) -> ApiError:
    """Return the 400 that names the first invalid field, never its value."""
    first = error.errors()[0]
    place = first["loc"][1:] if isinstance(error, RequestValidationError) else first["loc"]
    field = next((part for part in place if isinstance(part, str)), None)
    if first["type"] == "json_invalid":
        return bad("The body is not valid JSON.", code="invalid_json")
    return bad(f"{field or 'The body'}: {first['msg'].removeprefix('Value error, ')}", field)


async def explain(_: object, error: Exception) -> Response:
    """Leave an error to the guard; in the place of FastAPI's own handlers."""
    raise error


def _host_name(header: bytes) -> str | None:
    """Return the name or address in a `Host` header, without its port; `None` if it is invalid."""
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname
    except ValueError:
        return None
