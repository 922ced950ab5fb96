"""Handling of requests that offer to upgrade to another protocol: they are answered in HTTP/1.1.

Java's `HttpClient` and `curl --http2` send `Upgrade: h2c` with their first request; a server may ignore it
(RFC 9110, section 7.8). httptools does not: it treats the bytes after the head as the other protocol, so the
body is lost, or read as the next request. Such a head is fed to the parser again, without the offer.
uvicorn on httptools alone has this fault; nginx before it does not pass the offer on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httptools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from mar_st.serve.errors import Header

#: Headers of an offer to upgrade; `Connection` names them, too.
_OFFER_HEADERS = frozenset({b"upgrade", b"http2-settings"})


def feed(connection: HttpToolsProtocol, data: bytes) -> None:
    """Pass data to the parser of a connection; a head that offers another protocol is repeated without that.

    Args:
        connection: The connection; its parser is replaced after an offer.
        data: Received bytes.

    Raises:
        HttpParserError: The data is not HTTP, or is a `CONNECT` request, which cannot be rewritten.
    """
    rest = memoryview(data)
    while rest:
        parser: Any = connection.parser
        try:
            parser.feed_data(rest)
        except httptools.HttpParserUpgrade as offer:
            method = parser.get_method()
            if method == b"CONNECT":
                raise httptools.HttpParserError("CONNECT") from None
            head = without_offer(method, connection.url, parser.get_http_version(), connection.headers)
            # A parser discards everything after a head with `Connection: close` or of HTTP/1.0.
            connection.parser = _parser(connection)
            connection.parser.feed_data(head)
            rest = rest[offer.args[0] :]
        else:
            return


def _parser(connection: HttpToolsProtocol) -> Any:
    """Return a parser like the one that uvicorn made for the connection."""
    parser = httptools.HttpRequestParser(connection)
    with suppress(AttributeError):  # old versions of httptools are always lenient
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def without_offer(method: bytes, url: bytes, version: str, headers: Iterable[Header]) -> bytes:
    """Return the head of a request without the offer of another protocol.

    Args:
        method: Method of the request.
        url: Target of the request, as received.
        version: Version of HTTP, such as `1.1`.
        headers: Lower-case names, and values as returned by a parser, without line breaks.
    """
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    for name, value in headers:
        if name in _OFFER_HEADERS:
            continue
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _OFFER_HEADERS)
            if not value:
                continue
        lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
