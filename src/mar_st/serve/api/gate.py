"""Middleware for every request: access and format checks, errors, metrics, the access log.

It passes searches and embeddings directly to their endpoints (`mar_st.serve.api.http`). Both modules together
answer 1.4 times as many searches per second as FastAPI's routing with starlette's middleware for hosts and
one that counts requests (medians 542 and 392; `benchmarks/serve.py --app connections,stock`).
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.serve.api.http import STARTED_KEY, error_reply
from mar_st.serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mar_st.serve.api.keys import KeyRing
    from mar_st.serve.metrics import Metrics
    from mar_st.serve.settings import ServeSettings

_LOG = logging.getLogger(__name__)
_ACCESS = logging.getLogger("mar_st.serve.access")


@dataclass(frozen=True)
class AccessRule:
    """Access rule of a path.

    Attributes:
        open: Allowed without a key.
        keyed: Allowed only on a server that has keys configured.
    """

    open: bool = False
    keyed: bool = False


_OPEN_RULE = AccessRule(open=True)

#: Access rules by path. Metrics and logs name these paths; any other path is "other" there.
ACCESS_RULES = {
    "/": _OPEN_RULE,
    "/page.js": _OPEN_RULE,
    "/texts.js": _OPEN_RULE,
    "/page.css": _OPEN_RULE,
    "/docs": _OPEN_RULE,
    "/openapi.json": _OPEN_RULE,
    "/healthz": _OPEN_RULE,
    "/readyz": _OPEN_RULE,
    "/metrics": AccessRule(),
    "/info": AccessRule(),
    "/search": AccessRule(),
    "/document": AccessRule(),
    "/v1/embeddings": AccessRule(),
    "/v1/models": AccessRule(),
    "/admin/reload": AccessRule(keyed=True),
}
_OTHER_RULE = AccessRule()

#: Value of `Host`: a host and an optional port (RFC 9110).
_HOST = re.compile(r"(?:(?P<name>[^\s:@/\[\]]+)|\[(?P<address>[0-9a-f:.]+)\])(?::\d{0,5})?")

#: Maximum frames of a traceback that are logged.
_MAX_FRAMES = 8

#: Start of the paths of single models, which are counted as one path: the caller chooses the rest.
MODEL_PATH = "/v1/models/"


class Gate:
    """ASGI middleware around the application.

    Args:
        app: The application.
        settings: Hosts, logs.
        keys: Keys of callers; empty if none is required.
        metrics: Counts requests.
        direct: Fast endpoints by method and path; they bypass the middleware and the routing of the
            application.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        keys: KeyRing,
        metrics: Metrics,
        direct: Mapping[tuple[str, str], ASGIApp],
    ) -> None:
        self.app, self.metrics, self.direct = app, metrics, direct
        self.keys, self.hosts, self.log = keys, settings.hosts, settings.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = scope[STARTED_KEY] = time.monotonic()
        path = scope["path"]
        rule = ACCESS_RULES.get(path)
        name = path if rule else f"{MODEL_PATH}{{model}}" if path.startswith(MODEL_PATH) else "other"
        status = 0

        bare = scope["method"] == "HEAD"  # answered as GET is, without the body
        method = "GET" if bare else scope["method"]

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif bare:
                message = {**message, "body": b""}
            await send(message)

        try:
            self._check(scope, rule or _OTHER_RULE)
            endpoint = self.direct.get((method, path), self.app)
            await endpoint({**scope, "method": method} if bare else scope, receive, watch)
        except ApiError as error:
            self.metrics.errors.labels(error.code).inc()
            await error_reply(error).send(watch)
        except Exception as error:
            self.metrics.errors.labels("internal").inc()
            # Log neither the message of the exception nor any value, since both may hold the text of a query.
            # Log only one line, since a caller may send a failing request often.
            _LOG.error("%s in a request, at %s", type(error).__name__, _places(error))
            if status:  # the ASGI server closes the connection
                return
            await error_reply(
                ApiError(500, "internal", "Internal server error; the server's log says where.")
            ).send(watch)
        finally:
            seconds = time.monotonic() - started
            self.metrics.answered(name, status, seconds)
            if self.log:
                _ACCESS.info("%s %s %d %.1fms", scope["method"], name, status, 1000 * seconds)

    def _check(self, scope: Scope, rule: AccessRule) -> None:
        headers = scope["headers"]
        if self.hosts is not None:
            _check_host(headers, self.hosts)
        if self.keys:
            if not rule.open and not self.keys.admits(headers):
                raise ApiError(
                    401,
                    "invalid_api_key",
                    "This needs an API key: Authorization: Bearer KEY.",
                    headers=[(b"www-authenticate", b"Bearer")],
                )
        elif rule.keyed:
            raise ApiError(403, "no_api_keys", "This path needs a server that was started with API keys.")


def _places(error: Exception) -> str:
    """Return the call stack of an exception, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[: -_MAX_FRAMES - 1 : -1]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


def _check_host(headers: list[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    values = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
    # Of two values, a proxy in front may have checked the other.
    match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    if match is None or (match["name"] or match["address"]) not in hosts:
        raise ApiError(
            400, "unknown_host", "This server does not answer to that Host. Start it with --allow-host NAME."
        )
