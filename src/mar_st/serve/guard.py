"""Checks of every request before the application sees it: hosts, API keys, sizes; the one form of errors."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
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
from mar_st.files import regular
from mar_st.online.batcher import DeadlinePassed, QueueFull
from mar_st.serve import API_KEYS_VARIABLE, ServeSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mar_st.serve.metrics import Metrics

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

#: Minimum characters of a key; shorter ones could be guessed.
MIN_KEY_LENGTH = 16

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


class Keys:
    """The API keys of callers; false if none is required.

    Args:
        path: File of keys, one per line (`#` starts a comment); without it, they are those of
            `$MAR_API_KEYS`.

    Raises:
        MarError: The file is missing, readable by others or without keys, or a key is too short or holds
            characters that a header cannot hold.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._digests: frozenset[bytes] = frozenset()
        self.read()

    def __bool__(self) -> bool:
        return bool(self._digests)

    def read(self) -> None:
        """Read the keys again; on an error they stay as they are."""
        where = str(self._path or API_KEYS_VARIABLE)
        if self._path is None:
            keys = os.environ.get(API_KEYS_VARIABLE, "").replace(",", " ").split()
        else:
            try:
                mode = regular(self._path).stat().st_mode
                text = self._path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise MarError(f"The API keys in {where} cannot be read ({type(error).__name__}).") from error
            if mode & 0o077:
                raise MarError(f"{where} can be read by other users of this machine. Run chmod 600 {where}.")
            lines = [line.strip() for line in text.splitlines()]
            keys = [line for line in lines if line and not line.startswith("#")]
        if not keys and (self._path is not None or API_KEYS_VARIABLE in os.environ):
            raise MarError(f"{where} holds no key. Write a key into it, one per line.")
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
                raise MarError(
                    f"Key {number} of {where} is not usable: a key has at least {MIN_KEY_LENGTH} printable "
                    "ASCII characters without spaces. Make one: "
                    'python -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
        self._digests = frozenset(hashlib.sha256(key.encode()).digest() for key in keys)

    def admit(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if headers hold a known key (`Authorization: Bearer KEY` or `X-API-Key: KEY`).

        Digests are compared, so the time reveals nothing about a key.
        """
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        return hashlib.sha256(given.strip()).digest() in self._digests


def allowed_hosts(settings: ServeSettings, keys: Keys) -> frozenset[str] | None:
    """Return the names that the `Host` of a request may have; `None` for any.

    Without keys a page of any website could make a browser on this machine call the server (DNS rebinding).
    With keys it cannot, so any name is allowed.

    Raises:
        MarError: Other machines can reach the server, and there are no keys.
    """
    host = settings.host.lower()
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if keys:
        return None
    if not loopback:
        raise MarError(
            f"{host} can be reached from other machines, and there are no API keys. Give --api-keys FILE "
            f"(or {API_KEYS_VARIABLE}), or listen on 127.0.0.1."
        )
    return frozenset({"127.0.0.1", "::1", "localhost", host})


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
