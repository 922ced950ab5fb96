"""Connections that misbehave have no effect on other clients."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from types import SimpleNamespace

import httpx
import pytest

from mar_st.serve.connections import guard
from mar_st.serve.connections.protocol import GuardedProtocol
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.sockets import JSON, connect, post, read_all, read_answer, with_server


@pytest.mark.thorough
def test_silent_connections_are_closed_and_make_room(serve):
    server = serve(max_connections=40, header_timeout=2.0)
    silent = [connect(server) for _ in range(150)]
    began = time.monotonic()
    for number in range(20):
        assert server.search(f"问题{number}").status_code == 200
    assert time.monotonic() - began < 20
    # One that speaks slowly has no more time than one that is silent.
    slow = connect(server)
    slow.sendall(b"POST /search HTTP/1.1\r\n")
    for _ in range(4):
        time.sleep(0.5)
        slow.sendall(b"X-Slow: 1\r\n")
    assert b" 408 " in read_all(slow, 5)
    assert all(not said or b" 408 " in said for said in (read_all(one, 5) for one in silent))
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'mar_connections_closed_total{reason="crowded"}' in metrics
    assert 'mar_connections_closed_total{reason="silent"}' in metrics
    for one in [*silent, slow]:
        one.close()


@pytest.mark.thorough
def test_a_client_is_told_to_retry_if_every_connection_is_busy(serve):
    server = serve(max_connections=2, seconds=1.0)
    busy = [connect(server) for _ in range(2)]
    for one in busy:
        one.sendall(post(b"/search", b'{"query": "q"}', b"Host: 127.0.0.1", JSON))
    time.sleep(0.6)  # what waits for its head would make room
    with connect(server) as another:
        status, head, body = read_answer(another)
        assert (status, b"too_many_connections" in body) == (503, True)
        assert b"\r\nretry-after: 1\r\n" in head + b"\r\n"
    assert [read_answer(one)[0] for one in busy] == [200, 200]
    for one in busy:
        one.close()


@pytest.mark.thorough
def test_a_body_that_does_not_come_is_a_408(serve):
    server = serve(body_timeout=0.5)
    with connect(server) as one:
        one.sendall(
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 20\r\n\r\n{"
        )
        assert b" 408 " in read_all(one)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("coding", "status"),
    [("chunked", 200), ("Chunked ", 200), ("gzip, chunked", 501), ("identity, chunked", 501)],
)
def test_unsupported_transfer_codings_are_refused(lasting, coding, status):
    server = lasting()
    body = b'{"query": "x"}'
    head = f"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: {coding}\r\n".encode() + JSON
    with connect(server) as one:
        one.sendall(head + b"\r\n\r\ne\r\n" + body + b"\r\n0\r\n\r\n")
        assert read_answer(one)[0] == status


def test_a_large_body_is_refused_and_the_connection_stays_open(lasting):
    server = lasting()
    body = b'{"query": "' + b"x" * 10_000_000 + b'"}'
    with httpx.Client(base_url=server.url, headers={"content-type": "application/json"}) as client:
        assert client.post("/search", content=body).status_code == 413
        assert (
            client.post(
                "/search", content=(body[at : at + 65536] for at in range(0, len(body), 65536))
            ).status_code
            == 413
        )
        assert client.post("/search", json={"query": "头疼"}).status_code == 200
    with connect(server) as one:  # refused before it is sent
        one.sendall(
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: 10000000\r\n\r\n"
        )
        assert one.recv(100).startswith(b"HTTP/1.1 413")


def test_a_large_head_is_a_431_and_invalid_http_a_400(lasting):
    server = lasting()
    with connect(server) as one:
        one.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(100):
                one.sendall(b"X-Filler: " + b"x" * 1000 + b"\r\n")
        except OSError:
            pass
        assert b" 431 " in read_all(one)
    for junk in (b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"\x00" * 100):
        with connect(server) as one:
            one.sendall(junk)
            assert b" 400 " in read_all(one)
    assert server.search("头疼").status_code == 200


def test_pipelined_requests_are_answered_in_order(lasting):
    server = lasting()
    one_request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(server) as one:
        one.sendall(one_request * 5 + b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answers = read_all(one)
    assert answers.count(b"HTTP/1.1 200") == 6
    assert answers.endswith(b'{"status":"ready"}')


@pytest.mark.thorough
def test_a_delayed_server_answers_requests_that_arrived_in_time():
    """libuv runs timers after it has handled what it polled, and before it polls again."""

    class HeldUp(GuardedProtocol):
        def data_received(self, data):
            if b"/hold" in data:
                time.sleep(1.6)
            super().data_received(data)

    class App:
        state = SimpleNamespace(metrics=None, generations=None)

        async def __call__(self, scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})

    def answer(connection):
        received = b""
        while not received.endswith(b"ok"):
            part = connection.recv(1000)
            assert part, "closed without an answer"
            received += part

    def client(port):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as one,
            socket.create_connection(("127.0.0.1", port), timeout=10) as quiet,
            socket.create_connection(("127.0.0.1", port), timeout=10) as other,
        ):
            for connection in (one, quiet):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                answer(connection)
            other.sendall(b"GET /hold HTTP/1.1\r\n\r\n")
            time.sleep(0.5)
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")  # half of its time is left
            answer(one)
            answer(other)
            assert quiet.recv(10) == b""

    with_server(client, App(), HeldUp)


class CountingApp:
    """Answers `ok`; remembers the paths that it was asked."""

    def __init__(self, generations=None, metrics=None):
        self.state = SimpleNamespace(metrics=metrics, generations=generations)
        self.asked = []

    async def __call__(self, scope, receive, send):
        self.asked.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def test_oversized_requests_are_refused_before_the_application_sees_them(monkeypatch):
    monkeypatch.setattr(guard, "MAX_IN_PROGRESS", -1)
    engine = SimpleNamespace(full=lambda: 2.3, waiting=0)
    metrics = Metrics()
    app = CountingApp(SimpleNamespace(current=engine), metrics)

    def client(port):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            for path in (b"/search", b"/v1/embeddings", b"/search?x=1"):
                one.sendall(post(path))
                status, head, body = read_answer(one)
                assert status == 429
                assert b"retry-after: 3" in head
                assert json.loads(body)["error"]["code"] == "overloaded"
            assert app.asked == []
            # A body larger than a head may be, in parts; the connection stays in step.
            large = post(b"/search", b"x" * 300_000)
            for at in range(0, len(large), 7000):
                one.sendall(large[at : at + 7000])
            assert read_answer(one)[0] == 429
            # Other paths and methods go through, as does everything once there is room.
            one.sendall(post(b"/admin/reload"))
            assert read_answer(one)[0] == 200
            one.sendall(b"GET /search HTTP/1.1\r\n\r\n")
            assert read_answer(one)[0] == 200
            one.sendall(post(b"/search", b"{}", b"Expect: 100-continue").removesuffix(b"{}"))
            assert b"100 Continue" in one.recv(1000)
            one.sendall(b"{}")
            assert read_answer(one)[0] == 200
            engine.full = lambda: None
            one.sendall(post(b"/search"))
            assert read_answer(one)[0] == 200
            engine.full = lambda: 1.0
            # Two at once: the first is refused, and so is the second.
            one.sendall(post(b"/search") * 2)
            assert one.recv(65536).count(b"HTTP/1.1 429") == 2
            one.sendall(post(b"/search", b"{}", b"Connection: close"))
            assert b"connection: close" in read_answer(one)[1]
            assert one.recv(10) == b""
        assert app.asked == ["/admin/reload", "/search", "/search", "/search"]
        lines = metrics.page().decode().splitlines()
        assert 'mar_errors_total{kind="overloaded"} 7.0' in lines
        assert 'mar_requests_total{route="/search",status="429"} 6.0' in lines
        with socket.create_connection(("127.0.0.1", port), timeout=10) as resting:
            resting.sendall(post(b"/search"))
            assert read_answer(resting)[0] == 429
            began = time.monotonic()
            assert resting.recv(10) == b""  # ended as any connection that rests too long
            assert 0.5 < time.monotonic() - began < 5

    with_server(client, app)


def test_too_many_document_requests_do_not_reach_the_application(monkeypatch):
    monkeypatch.setattr(guard, "MAX_READS", 3)
    go = threading.Event()

    class Held(CountingApp):
        async def __call__(self, scope, receive, send):
            while scope["path"] == "/document" and not go.is_set():
                await asyncio.sleep(0.001)
            await super().__call__(scope, receive, send)

    app = Held(SimpleNamespace(current=None), Metrics())
    read = b"GET /document?id=d1 HTTP/1.1\r\n\r\n"

    def client(port):
        callers = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(9)]
        for one in callers:
            one.sendall(read)
        for one in callers[3:]:
            status, head, body = read_answer(one)
            assert (status, json.loads(body)["error"]["code"]) == (429, "overloaded")
            assert b"retry-after: 1" in head
        # The rest is answered meanwhile, and a caller who leaves makes room for another.
        callers[3].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert read_answer(callers[3])[0] == 200
        callers[0].close()
        time.sleep(0.1)
        callers[3].sendall(read)
        callers[4].sendall(read)
        assert read_answer(callers[4])[0] == 429
        go.set()
        for one in callers[1:4] * 2:
            assert read_answer(one)[0] == 200
            one.sendall(read)  # on a connection that has read before
        for one in callers[1:]:
            one.close()

    with_server(client, app)


@pytest.mark.thorough
def test_simultaneous_connections_are_accepted_together():
    times = []

    class Noted(GuardedProtocol):
        def connection_made(self, transport):
            times.append(time.monotonic())
            super().connection_made(transport)

    def client(port):
        callers = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(150)]
        for one in callers:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert [read_answer(one)[0] for one in callers] == [200] * 150
        for one in callers:
            one.close()

    # One connection in each turn of 20 ms would take three seconds.
    with_server(client, CountingApp(), Noted, most=500, busy=0.02)
    assert len(times) == 150
    assert times[-1] - times[0] < 2


@pytest.mark.thorough
def test_a_burst_beyond_the_connections_is_answered_or_told_to_retry():
    """Every client accepted in a turn of the event loop has sent a request that has not been read yet."""
    answers = Counter()

    def client(port):
        callers = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(120)]
        for one in callers:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answers.update(read_answer(one)[0] for one in callers)
        for one in callers:
            one.close()

    with_server(client, CountingApp(), most=40, busy=0.1)
    assert answers[200] >= 40
    assert answers[200] + answers[503] == 120


@pytest.mark.thorough
def test_a_burst_on_full_queues_is_refused_and_connections_stay_open(serve):
    server = serve(per_text=0.05, max_queue=8, max_batch=1, timeout=5.0)
    first = [connect(server) for _ in range(12)]
    for number, one in enumerate(first):
        one.sendall(post(b"/search", b'{"query": "%d"}' % number, b"Host: 127.0.0.1", JSON))
    time.sleep(0.1)
    burst = [connect(server) for _ in range(400)]
    for one in burst:
        one.sendall(post(b"/search", b'{"query": "q"}', b"Host: 127.0.0.1", JSON))
    answers = Counter(read_answer(one)[0] for one in [*first, *burst])
    assert set(answers) == {200, 429}
    assert answers[429] > 300
    for one in burst[::40]:
        one.sendall(post(b"/search", b'{"query": "q"}', b"Host: 127.0.0.1", JSON))
        assert read_answer(one)[0] == 200
    for one in [*first, *burst]:
        one.close()
