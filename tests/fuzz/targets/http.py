"""Fuzz target of the server's protocol class: bytes of a client, in pieces of any size."""

from __future__ import annotations

import asyncio
import re
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.server import ServerState

from mar_st.serve import ServeSettings, create_app
from mar_st.serve.connections.config import ServeConfig
from mar_st.serve.connections.guard import ConnectionLimits
from mar_st.serve.connections.protocol import GuardedProtocol
from tests.fuzz.engine import Target
from tests.mar_st.serve.fakes import DOCUMENTS, FakeEncoder, FakeSearcher

if TYPE_CHECKING:
    from pathlib import Path

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


class _Transport(asyncio.Transport):
    """A connection whose caller reads everything at once."""

    def __init__(self, pair: socket.socket) -> None:
        super().__init__({"socket": pair, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written, self.closing, self.paused = bytearray(), False, False

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self.write(part)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_reading(self) -> bool:
        return not self.paused


def prepare(_: Path) -> Target:
    """Set up the target: the HTTP protocol of the server."""
    loop = asyncio.new_event_loop()
    troubles: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: troubles.append(context))
    searcher = FakeSearcher(DOCUMENTS, FakeEncoder())
    app = create_app(searcher, ServeSettings())
    config = ServeConfig(
        ConnectionLimits(max_connections=9, send_seconds=10.0), app=app, lifespan="off", proxy_headers=False
    )
    asyncio.set_event_loop(loop)
    config.load()
    state = ServerState()
    ends = socket.socketpair()

    async def converse(pieces: list[bytes]) -> bytes:
        protocol = GuardedProtocol(config, state, {}, asyncio.get_running_loop())
        transport = _Transport(ends[0])
        protocol.connection_made(transport)
        for piece in pieces:
            if transport.closing:
                break
            protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(200):
            cycle = protocol.cycle
            if transport.closing or cycle is None or cycle.response_complete or protocol._body_open:
                break
            await asyncio.sleep(0.0005)
        protocol.eof_received()
        protocol.connection_lost(None)
        for _ in range(200):
            if not state.tasks:
                break
            await asyncio.sleep(0.0005)
        return bytes(transport.written)

    good = _post(b"/search", '{"query": "头疼"}'.encode())
    count = [0]

    def check(data: bytes) -> str:
        size = (1, 7, 64, 1000, 2**20)[sum(data[:64]) % 5] if len(data) < 3000 else 2**16
        answers = loop.run_until_complete(
            converse([data[at : at + size] for at in range(0, len(data), size)])
        )
        assert not troubles, troubles
        assert not state.tasks, "a task is left"
        assert not state.connections, "a connection is left"
        assert not answers or _STATUS.match(answers), answers[:100]
        statuses = [int(status) for status in _STATUS.findall(answers)]
        # 501: a transfer coding that is not understood
        allowed = {503, 504, 501} if b"transfer-encoding" in data.lower() else {503, 504}
        assert not {status for status in statuses if status >= 500} - allowed, answers[:2000]
        count[0] += 1
        if count[0] % 100 == 0:
            assert b"200 OK" in loop.run_until_complete(converse([good]))[:20], "it answers no more"
        return " ".join(HTTPStatus(status).name for status in statuses[:3]) if statuses else "no answer"

    return Target(_seeds(), check, words=_WORDS)


def _post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [
        b"POST %s HTTP/1.1" % path, b"Host: 127.0.0.1", b"Content-Type: application/json",
        b"Content-Length: %d" % len(body), *headers,
    ]  # fmt: skip
    return b"\r\n".join([*lines, b"", body])


def _seeds() -> list[bytes]:
    search = _post(b"/search", '{"query": "头疼", "k": 3, "where": {"year": {"gte": 3}}}'.encode())
    chunked = (
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n7;a=b\r\n{\"query\r\n7\r\n\": \"x\"}\r\n0\r\nX-T: 1\r\n\r\n"
    )  # fmt: skip
    offer = search.replace(
        b"\r\n\r\n",
        b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        1,
    )
    gets = [
        b"%s %s HTTP/1.%d\r\nHost: 127.0.0.1\r\n\r\n" % (way, path, version)
        for way, path, version in (
            (b"GET", b"/", 1), (b"GET", b"/healthz", 0), (b"HEAD", b"/readyz", 1), (b"GET", b"/metrics", 1),
            (b"GET", b"/info", 1),
            (b"GET", b"/v1/models", 1), (b"GET", b"/openapi.json", 1), (b"OPTIONS", b"*", 1), (b"GET",
            b"/docs?x=%00", 1),
            (b"CONNECT", b"a:1", 1), (b"PRI", b"*", 1), (b"DELETE", b"/search", 1), (b"GET",
            b"http://a/search", 1),
        )
    ]  # fmt: skip
    return [
        search, chunked, offer, search * 3, *gets, b"".join(gets[:6]),
        _post(b"/v1/embeddings", b'{"input": ["a", "b"], "encoding_format": "base64"}'),
        _post(b"/search", b"{}", b"Expect: 100-continue"), _post(b"/admin/reload", b"{}"),
        _post(b"/search", b'{"vector": [%s]}' % b",".join([b"0.1"] * 16)), chunked + search,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n" + b"X-A: 1\r\n" * 300 + b"\r\n",
    ]  # fmt: skip


_WORDS = (
    b"GET ", b"POST ", b" HTTP/1.1\r\n", b"HTTP/1.0", b"HTTP/9.9", b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, upgrade\r\n", b"Upgrade: websocket\r\n",
    b"Upgrade: h2c\r\n",
    b"Expect: 100-continue\r\n", b"Host: \r\n", b"\r\n\r\n", b"\r\n \r\n", b"0\r\n\r\n", b"5\r\nhello\r\n",
    b"ffffffffffffffff\r\n",
    b"FFFFFFF0\r\n", b"Authorization: Bearer x\r\n", b"Content-Encoding: gzip\r\n",
    b"Accept-Encoding: gzip\r\n", b"Range: bytes=0-\r\n",
    b"Origin: null\r\n", b"Cookie: " + b"a=b; " * 50 + b"\r\n", b"%2e%2e/", b"?k=1&k=2", b"#",
)  # fmt: skip
