"""Tests that a bad request adds at most one line to the log, without any of its content."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import httpx
import pytest

from tests.mar_st.serve.fakes import DIM
from tests.mar_st.serve.sockets import JSON, connect, post, read_all

HOST = b"Host: 127.0.0.1"

RAW = [
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET http://[secret HTTP/1.1\r\n\r\n",
    b"GET /%ff%fesecret HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"CONNECT secret:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: secret\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    post(b"/search", b"secret", HOST, JSON),
    post(b"/search", b"[" * 100_000, HOST, JSON),
    post(b"/search", b'{"query": "\\ud800secret"}', HOST, JSON),
    post(b"/search", b'{"query": "secret", "k": 1e999}', HOST, JSON),
    post(b"/search", b'{"vector": [%s]}' % b",".join([b"3e38"] * DIM), HOST, JSON),
    post(b"/search", b'{"query": "secret", "where": {"secret": 1}}', HOST, JSON),
    post(b"/admin/reload", b"{}", HOST, JSON),
    post(b"/secret", b"{}", HOST, JSON),
]


@pytest.mark.thorough
def test_bad_requests_leave_at_most_one_log_line_each(serve):
    server = serve()
    before = len(server.log)
    for raw in RAW * 3:
        with connect(server) as one, suppress(OSError):
            one.sendall(raw)
            one.shutdown(socket.SHUT_WR)
            read_all(one)
        with connect(server) as one:  # and away before the answer
            one.sendall(raw)
    assert server.search("头疼").status_code == 200
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'mar_errors_total{kind="internal"}' not in metrics
    time.sleep(0.3)
    assert server.log[before:] == []
