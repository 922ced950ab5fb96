"""Clients that do not read their answers, send endless requests, or send oversized heads and trailers."""

from __future__ import annotations

import re
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from mar_st.serve.connections.protocol import MAX_HEAD_BYTES, MAX_PIPELINED, TOO_MANY_FIELDS
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.servers import make_index
from tests.mar_st.serve.sockets import JSON, connect, post, read_all, read_answer, with_server

KEY = "a-key-of-enough-characters"

#: More than systems keep for a caller who does not read.
LARGE = 24 * 2**20

GET = b"GET / HTTP/1.1\r\n\r\n"


class LargeApp:
    """Answers with much; counts what it was asked."""

    def __init__(self, size=LARGE):
        self.state = SimpleNamespace(metrics=Metrics(), generations=None)
        self.body, self.asked = b"x" * size, 0

    async def __call__(self, scope, receive, send):
        self.asked += 1
        length = str(len(self.body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self.body})

    def dropped(self, reason):
        line = f'mar_connections_closed_total{{reason="{reason}"}}'
        match = re.search(re.escape(line) + r" (\S+)", self.state.metrics.page().decode())
        return 0 if match is None else float(match[1])


def slow_socket(port):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    one.settimeout(10)
    one.connect(("127.0.0.1", port))
    return one


@pytest.mark.thorough
def test_connections_that_do_not_read_are_closed():
    app = LargeApp()

    def client(port):
        with slow_socket(port) as one:
            one.sendall(GET)
            until = time.monotonic() + 8
            while not app.dropped("unread") and time.monotonic() < until:
                time.sleep(0.1)
            assert app.dropped("unread") == 1
            assert len(read_all(one)) < LARGE

    with_server(client, app, send_seconds=1.0)


@pytest.mark.thorough
def test_slow_readers_get_the_whole_answer():
    app = LargeApp()

    def client(port):
        with slow_socket(port) as one:
            one.sendall(GET)
            received, began = 0, time.monotonic()
            while received < LARGE:
                data = one.recv(2**18)
                assert data, f"closed after {received:,} bytes"
                received += len(data)
                if time.monotonic() - began < 5:
                    time.sleep(0.05)
            assert time.monotonic() - began > 4
        assert app.dropped("unread") == 0

    with_server(client, app, send_seconds=2.0)


@pytest.mark.thorough
def test_no_more_requests_run_for_a_client_that_does_not_read():
    app = LargeApp()

    def client(port):
        with slow_socket(port) as one:
            one.sendall(GET * 20)
            time.sleep(1)
            one.sendall(GET)
            time.sleep(0.5)
            assert app.asked == 1
            data, wanted = b"", 21 * LARGE
            received = 0
            while received < wanted:
                data = one.recv(2**20)
                assert data
                received += len(data)
        assert app.asked == 21

    with_server(client, app)


@pytest.mark.parametrize("together", [True, False])
def test_pipelined_requests_beyond_the_limit_are_not_read(together):
    app = LargeApp(10)

    def client(port):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            one.sendall(GET * 200 if together else GET * 200 + post(b"/", b"y" * 100_000))
            answers = read_all(one)
        answered = answers.count(b"HTTP/1.1 200")
        assert answered == 1 + MAX_PIPELINED
        assert answers.lower().count(b"connection: close") == 1
        assert app.asked == answered
        assert app.dropped("pipelined") == 1
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:  # as many as may wait
            one.sendall(GET * (1 + MAX_PIPELINED))
            for _ in range(1 + MAX_PIPELINED):
                data = b""
                while not data.endswith(b"x" * 10):
                    part = one.recv(1)
                    assert part, "closed within an answer"
                    data += part
            one.sendall(GET)
            assert read_answer(one)[0] == 200

    with_server(client, app)


@pytest.mark.slow
def test_sockets_that_do_not_read_block_neither_probes_nor_the_stop(serve, tmp_path):
    server = serve(make_index(tmp_path, [f"第{place}篇" + "内容" * 100 for place in range(1000)]))
    request = post(b"/search", b'{"query": "x", "k": 1000}', b"Host: 127.0.0.1", JSON)
    callers = [slow_socket(server.port) for _ in range(50)]
    for one in callers:
        one.setblocking(False)
        with suppress(BlockingIOError):
            one.send(request * 30)
    until = time.monotonic() + 60
    while server.search("头疼").status_code != 200:  # one answer for each of them may come first
        assert time.monotonic() < until
        time.sleep(0.5)
    assert all(server.search(f"问题{number}").status_code == 200 for number in range(20))
    metrics = httpx.get(f"{server.url}/metrics", timeout=20).text
    answered = re.search(r'mar_requests_total\{route="/search",status="200"\} (\S+)', metrics)
    assert float(answered[1]) <= 50 + 21  # before: hundreds, all for nobody
    began = time.monotonic()
    assert server.stop(25) == 0
    # A connection ends after 3 s without progress; the kernel's buffers may take more of an answer first.
    assert time.monotonic() - began < 20  # --shutdown-timeout is 30 s
    for one in callers:
        one.close()


def memory(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


@pytest.mark.thorough
@pytest.mark.parametrize("trailer", [b"a: b\r\n" * 10_000, b"a" * 60_000], ids=["many", "one without end"])
@pytest.mark.parametrize("key", [True, False])
def test_trailers_have_the_limit_of_a_head(lasting, trailer, key):
    server = lasting(api_keys=[KEY])
    shown = f"Authorization: Bearer {KEY if key else 'x' * 20}\r\n".encode()
    before = memory(server)
    with connect(server) as one:
        one.sendall(
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + shown
            + b"Transfer-Encoding: chunked\r\n\r\ne\r\n{\"query\": \"x\"}\r\n0\r\n"
        )  # fmt: skip
        sent = 0
        with suppress(OSError):
            for _ in range(300):
                one.sendall(trailer)
                sent += len(trailer)
        assert sent < 300 * len(trailer)
        answer = read_all(one)
    assert b" 431 " in answer or b" 401 " in answer or not answer
    assert memory(server) - before < 60
    assert server.search("x").status_code == 401


@pytest.mark.thorough
def test_short_trailers_are_skipped(lasting):
    server = lasting()
    with connect(server) as one:
        for _ in range(2):
            one.sendall(
                b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
                b"e;extension=1\r\n{\"query\": \"x\"}\r\n0\r\nX-Check: 12\r\nHost: elsewhere\r\n\r\n"
            )  # fmt: skip
            assert read_answer(one)[0] == 200


@pytest.mark.thorough
def test_extensions_of_chunks_have_a_limit(lasting):
    server = lasting()
    with connect(server) as one:
        one.sendall(
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1;"
        )
        sent = 0
        with suppress(OSError):
            for _ in range(100):
                one.sendall(b"x" * 60_000)
                sent += 60_000
                time.sleep(0.01)
        assert sent < 100 * 60_000
    assert MAX_HEAD_BYTES == 64 * 1024


def test_the_number_of_header_fields_is_limited(lasting):
    server = lasting()
    for count, status in ((TOO_MANY_FIELDS - 1, 200), (TOO_MANY_FIELDS, 431)):
        with connect(server) as one:
            fields = [b"Host: 127.0.0.1", *(b"X-%d: 1" % number for number in range(count - 1))]
            one.sendall(b"GET /healthz HTTP/1.1\r\n" + b"\r\n".join(fields) + b"\r\n\r\n")
            assert read_answer(one)[0] == status


@pytest.mark.parametrize(("size", "status"), [(MAX_HEAD_BYTES, 200), (MAX_HEAD_BYTES + 1, 431)])
@pytest.mark.parametrize("trailing", [False, True])
def test_a_head_sent_in_one_piece_has_the_same_limit(lasting, size, status, trailing):
    server = lasting()
    body = b'{"query": "x"}'
    kind = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
    if trailing:
        head = b"POST /search HTTP/1.1\r\n" + kind + b"Transfer-Encoding: chunked\r\n\r\n"
        request = head + b"e\r\n%s\r\n0\r\nLong: %s\r\n\r\n" % (body, b"x" * (size - 4))
    else:
        bare = len("/searchHost127.0.0.1Content-Typeapplication/jsonContent-Length14Long")
        lines = kind + b"Content-Length: 14\r\nLong: %s\r\n\r\n" % (b"x" * (size - bare))
        request = b"POST /search HTTP/1.1\r\n" + lines + body
    with connect(server) as one:
        one.sendall(request)
        assert one.recv(100).startswith(b"HTTP/1.1 %d" % status)


@pytest.mark.thorough
def test_clients_that_disconnect_while_waiting_are_not_logged(serve):
    server = serve(seconds=0.4)
    body = b'{"query": "x"}'
    request = (
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 14\r\n\r\n" + body
    )
    for _ in range(5):
        with connect(server) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            one.sendall(request * 3)
            time.sleep(0.1)
    time.sleep(1)
    assert server.search("头疼").status_code == 200
    server.stop()
    assert not [line for line in server.log if "Traceback" in line or "ERROR" in line]
