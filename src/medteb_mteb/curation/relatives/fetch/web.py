"""A client for one public API that limits its request rate and treats every response as hostile.

Requests are sent one after the other with a minimum pause between them and name the program and a contact
address; the client waits as long as the server asks. Redirects to other servers are refused, the size of
bodies is limited, and a request is repeated if the body was cut or does not have the expected format.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import re
import time
import zlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from mar_st.files import one_line, printable
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.messages import retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

__all__ = ["RequestSettings", "TransientError", "Web", "address_of", "parse_json_body"]

logger = logging.getLogger(__name__)

Content = TypeVar("Content")

#: Maximum bytes of an unpacked response.
MAX_BODY_BYTES = 128 << 20
#: Longest pause in seconds that a server may ask for; the fetch ends if it asks for more.
MAX_PAUSE_SECONDS = 600.0
_CHUNK_BYTES = 1 << 16
_CONTACT = re.compile(r"[\x21-\x7e]+@[\x21-\x7e]+\.[\x21-\x7e]+|https?://[\x21-\x7e]+")
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


def address_of(base: str, path: str, params: Mapping[str, Any]) -> str:
    """Return the address of a request; without parameters it has no question mark."""
    return f"{base}{path}?{urlencode(params)}" if params else f"{base}{path}"


class TransientError(Exception):
    """An attempt that failed temporarily.

    Attributes:
        reason: Reason, for messages.
        after: Seconds that the server asks clients to wait.
    """

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.after = reason, after


class _LeavesServerError(Exception):
    """A redirect to another server."""


class _SameServer(HTTPRedirectHandler):
    """Follows redirects only within the same server."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Request | None:
        """Return the next request.

        Raises:
            _LeavesServerError: The redirect leads to another server.
        """
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            raise _LeavesServerError(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class RequestSettings:
    """Settings of requests to a server.

    Attributes:
        contact: E-mail address or web page of the user, which NCBI and Wikimedia require.
        per_second: Maximum requests per second.
        attempts: Maximum attempts per request.
        backoff: Seconds before the second attempt; doubles before each further one.
        timeout: Maximum seconds without a byte; a whole response may take ten times as long.
    """

    contact: str
    per_second: float
    attempts: int = 7
    backoff: float = 1.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not _CONTACT.fullmatch(self.contact):
            raise BuildError(
                f"The contact must be an e-mail address or a web page, so that the server's operators can "
                f"reach you; got {self.contact[:80]!r}."
            )
        if not 0 < self.per_second <= 100:
            raise BuildError(f"Requests per second must be above 0 and at most 100; got {self.per_second}.")


class Web:
    """One API.

    Args:
        base: Address to which paths are added; `https`, or `http` on this machine.
        settings: Settings of the requests.
        secret: Parameters that are sent with every request and never appear in messages.
        sleep: Called with the seconds to wait; default `time.sleep`.

    Raises:
        BuildError: The address is invalid.
    """

    def __init__(
        self,
        base: str,
        settings: RequestSettings,
        *,
        secret: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        parts = urlsplit(base)
        local = parts.hostname in _LOOPBACK_HOSTS
        if not parts.hostname or parts.scheme not in (("http", "https") if local else ("https",)):
            raise BuildError(f"{base[:200]!r} is not an https address; http is allowed only on this machine.")
        self.base, self.settings = base.rstrip("/"), settings
        self._secret, self._sleep = dict(secret or {}), sleep or time.sleep
        handlers = [_SameServer(), *([ProxyHandler({})] if local else [])]
        self._opener: OpenerDirector = build_opener(*handlers)
        self._next = 0.0

    def get(
        self, path: str, params: Mapping[str, Any], parse: Callable[[bytes], Content]
    ) -> tuple[bytes, Content]:
        """Send a request, and repeat it until there is a usable response.

        Args:
            path: Path, added to the base address.
            params: Parameters of the query string.
            parse: Returns the content of a body, or raises `TransientError` to repeat the request.

        Returns:
            The body and its content.

        Raises:
            BuildError: The server gives no usable response.
        """
        shown = address_of(self.base, path, params)[:300]
        for attempt in range(self.settings.attempts):
            try:
                body = self._once(address_of(self.base, path, {**params, **self._secret}), shown)
                return body, parse(body)
            except TransientError as again:
                if again.after > MAX_PAUSE_SECONDS:
                    raise BuildError(
                        f"{self.base} requests a pause of {again.after:,.0f} seconds ({again.reason}). "
                        "What was fetched is kept: run the same command again then."
                    ) from None
                if attempt + 1 == self.settings.attempts:
                    raise BuildError(
                        f"{shown} gave no usable answer in {self.settings.attempts} attempts "
                        f"({again.reason}). What was fetched is kept: run the same command again later."
                    ) from None
                pause = self.settings.backoff * 2.0**attempt * random.uniform(0.5, 1.0)
                logger.info("%s: %s; next attempt in %.1f s", self.base, again.reason, pause)
                self._sleep(max(pause, again.after))
        raise AssertionError("a last attempt returns or raises")

    def _once(self, url: str, shown: str) -> bytes:
        wait = self._next - time.monotonic()
        if wait > 0:
            self._sleep(wait)
        self._next = time.monotonic() + 1 / self.settings.per_second
        agent = f"medteb/{version('medteb')} ({self.settings.contact})"
        request = Request(url, headers={"User-Agent": agent, "Accept-Encoding": "gzip"})  # noqa: S310 -- checked above
        try:
            with self._opener.open(request, timeout=self.settings.timeout) as response:
                return self._read(response)
        except _LeavesServerError as error:
            where = printable(str(error))[:200]
            raise BuildError(f"{shown} redirects to another server ({where}); that is refused.") from None
        except HTTPError as error:
            with error:
                raise self._status(error, shown) from None
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{type(error).__name__}: {printable(one_line(error, 150))}") from None

    def _status(self, error: HTTPError, shown: str) -> Exception:
        if error.code in (408, 425, 429) or error.code >= 500:
            headers = {name.lower(): value for name, value in error.headers.items()}
            return TransientError(f"status {error.code}", retry_after(headers))
        try:
            body = error.read(2000)
            if error.headers.get("Content-Encoding", "").lower() == "gzip":
                body = zlib.decompressobj(31).decompress(body, 2000)
            message = printable(" ".join(body.decode("utf-8", "replace").split()))[:200]
        except (OSError, http.client.HTTPException, zlib.error):
            message = ""
        return BuildError(f"{shown} is refused with status {error.code}{f': {message}' if message else ''}.")

    def _read(self, response: Any) -> bytes:
        """Return the unpacked body.

        Raises:
            TransientError: The body was cut, is not encoded as its header says, or takes too long.
            BuildError: The body is too large.
        """
        packed = response.headers.get("Content-Encoding", "identity").lower()
        if packed not in ("identity", "gzip"):
            raise TransientError(f"a body in the encoding {printable(packed)[:40]}")
        unpack = zlib.decompressobj(31) if packed == "gzip" else None
        end = time.monotonic() + 10 * self.settings.timeout
        parts: list[bytes] = []
        read = total = 0
        while chunk := response.read(_CHUNK_BYTES):
            read += len(chunk)
            try:
                part = chunk if unpack is None else unpack.decompress(chunk, MAX_BODY_BYTES + 1 - total)
            except zlib.error as error:
                raise TransientError(f"a damaged body ({error})") from None
            total += len(part)
            if total > MAX_BODY_BYTES:
                raise BuildError(
                    f"An answer of {self.base} has more than {MAX_BODY_BYTES:,} bytes; it is refused."
                )
            parts.append(part)
            if time.monotonic() > end:
                raise TransientError(
                    f"an answer that takes more than {10 * self.settings.timeout:.0f} seconds"
                )
        declared = response.headers.get("Content-Length")
        if (declared is not None and declared != str(read)) or (unpack is not None and not unpack.eof):
            raise TransientError(f"a body that was cut after {read:,} bytes")
        return b"".join(parts)


def parse_json_body(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON body.

    Raises:
        TransientError: The body is not a JSON object, such as a page that says that the service is down.
    """
    try:
        content = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        begins = printable(body[:40].decode("utf-8", "replace"))
        raise TransientError(f"a body that is not JSON and begins with {begins!r}") from None
    if not isinstance(content, dict):
        raise TransientError(f"JSON that is not an object: {str(content)[:40]!r}")
    return content
