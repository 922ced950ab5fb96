"""Clients of `limits.py`: a probe that searches continuously, and raw connections."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import statistics
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

#: Probes per second, and callers that take turns with them: each has 400 ms before its next one is late.
RATE, CALLERS = 40.0, 16


#: Seconds that anybody waits for an answer.
PATIENCE = 60.0


@dataclass
class Times:
    """Times of some probes, milliseconds."""

    p50: float
    p99: float
    failed: int


class Probe:
    """A process that searches all the time."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_probe, args=(port, theirs), daemon=True)
        self._seen: list[tuple[float, float, int]] = []

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def since(self, began: float) -> Times:
        """Times of the probes that were planned since a moment."""
        self._mine.send(time.monotonic())
        probes = sorted((took, status) for due, took, status in self._mine.recv() if due >= began)
        took = [1000 * seconds for seconds, _ in probes]
        failed = sum(status != 200 for _, status in probes)
        p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
        return Times(round(statistics.median(took), 2), round(p99, 2), failed)


def _probe(port: int, pipe: Any) -> None:
    """Search at a steady rate, and send what was measured up to a moment when asked for it."""
    seen: list[tuple[float, float, int]] = []
    done = [0.0] * CALLERS
    lock = threading.Lock()
    began = time.monotonic()

    def search(place: int) -> None:
        request = post("/search", json.dumps({"query": "头疼发烧吃什么药"}).encode())
        address = f"127.0.0.{2 + place}"  # not the attacker's: a proxy limits the requests of an address
        connection = Connection(port, address=address)
        for turn in itertools.count():
            due = began + (turn * CALLERS + place) / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                connection.send(request)
                status = connection.answer()[0]
            except OSError:
                connection.close()
                connection, status = Connection(port, address=address), 0
            with lock:
                seen.append((due, time.monotonic() - due, status))
                done[place] = due

    for place in range(CALLERS):
        threading.Thread(target=search, args=(place,), daemon=True).start()
    while True:
        until = pipe.recv()
        while min(done) < until:
            time.sleep(0.01)
        with lock:
            pipe.send(list(seen))
            seen.clear()


class Connection:
    """An HTTP connection of its own, as plain as it can be."""

    def __init__(self, port: int, *, address: str | None = None, buffer: int | None = None) -> None:
        self.socket, self.closed = socket.socket(), False
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE)
        if address is not None:
            self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer; `ConnectionError` if the connection is closed before."""
        data = self._left
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, rest = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        parts, have = [rest], len(rest)
        while have < size:
            parts.append(self._more())
            have += len(parts[-1])
        body = b"".join(parts)
        self.closed = b"\r\nconnection: close" in head.lower()
        self._left = body[size:]
        return int(head[9:12]), body[:size]

    def _more(self) -> bytes:
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError("closed")
        return part

    def ends(self) -> bool:
        """Read on until it is closed; false where it stays open."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


def post(path: str, body: bytes, more: bytes = b"") -> bytes:
    """A request."""
    return (
        b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" % path.encode()
        + b"%sContent-Length: %d\r\n\r\n" % (more, len(body))
        + body
    )
