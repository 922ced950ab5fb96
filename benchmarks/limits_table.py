"""The limits of `limits.py`: for each a request that is just accepted and one just beyond."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
from limits_client import CALLERS, PATIENCE, Connection, post

if TYPE_CHECKING:
    from collections.abc import Callable


#: Metadata fields of the index: one more than a filter may have conditions.
FIELDS = 65


@dataclass
class Attack:
    """Requests that try one limit, and their results.

    Attributes:
        port: Where the server listens.
        seconds: How long a request is repeated.
        facts: Texts that are just within and just beyond what the encoder takes.
        edge: What was answered to requests that are just within the limit.
        beyond: The same just beyond it.
        right: Whether that is what the documentation says.
        wrong: What else was answered.
    """

    port: int
    seconds: float
    facts: dict[str, Any]
    edge: str = ""
    beyond: str = ""
    right: bool = True
    wrong: str = ""

    def both(self, edge: bytes, beyond: bytes, refused: int, *, clients: int = 1) -> None:
        """Repeat a request that is answered, then one that is refused."""
        self.edge = self.repeat(edge, {200}, clients)
        self.beyond = self.repeat(beyond, {refused}, 1)

    def repeat(self, request: bytes, wanted: set[int], clients: int) -> str:
        """Ask again when there is an answer; say which statuses came."""
        until = time.monotonic() + self.seconds
        statuses: Counter[int] = Counter()

        def ask() -> None:
            connection = Connection(self.port)
            while time.monotonic() < until:
                try:
                    connection.send(request)
                    statuses[connection.answer()[0]] += 1
                except OSError:
                    statuses[0] += 1
                    connection.closed = True
                if connection.closed:  # by the server, which refused what it could not read on
                    connection.close()
                    connection = Connection(self.port)
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._seen(statuses, wanted)

    def burst(self, request: bytes, wanted: set[int], clients: int, *, every: float = 1.0) -> str:
        """Ask from many connections at once, `every` so many seconds; say which statuses came.

        One thread does so: hundreds of them would take the processors that the server needs.
        """
        statuses: Counter[int] = Counter()
        connections = [Connection(self.port) for _ in range(clients)]
        began = time.monotonic()
        for turn in range(1, int(self.seconds / every) + 1):
            time.sleep(max(0.0, began + turn * every - time.monotonic()))
            with selectors.DefaultSelector() as waiting:
                for one in connections:
                    one.send(request)
                    waiting.register(one.socket, selectors.EVENT_READ, one)
                while waiting.get_map():
                    ready = waiting.select(PATIENCE)
                    if not ready:
                        statuses[0] += len(waiting.get_map())
                        break
                    for key, _ in ready:
                        statuses[key.data.answer()[0]] += 1
                        waiting.unregister(key.fileobj)
        for one in connections:
            one.close()
        return self._seen(statuses, wanted)

    def _seen(self, statuses: Counter[int], wanted: set[int]) -> str:
        self.note(bool(statuses) and set(statuses) <= wanted, f"{dict(statuses)}")
        return "/".join(str(status) for status in sorted(statuses))

    def note(self, right: bool, detail: str) -> None:
        if not right:
            self.right, self.wrong = False, f"{self.wrong} {detail}"


@dataclass
class Limit:
    """A documented limit."""

    documented: str
    run: Callable[[Attack], None] = field(repr=False)


def _search(**fields: Any) -> bytes:
    return post("/search", json.dumps({"query": "头疼", **fields}, ensure_ascii=False).encode())


def _embed(texts: list[str]) -> bytes:
    return post("/v1/embeddings", json.dumps({"input": texts}, ensure_ascii=False).encode())


def body(attack: Attack) -> None:
    others = {"truncate": True, "hybrid": True, "k": 1000}

    def sized(size: int) -> bytes:
        left = size - len(json.dumps({"query": "", **others}))
        query = (many_words() * (left // len(many_words()) + 1))[:left]
        return post("/search", json.dumps({"query": query, **others}).encode())

    attack.both(sized(1 << 20), sized((1 << 20) + 1), 413)


def many_words() -> str:
    """Ten thousand different words of ASCII."""
    return " ".join(f"w{number}" for number in range(10_000)) + " "


def texts(attack: Attack) -> None:
    attack.both(_embed(["头疼"] * 256), _embed(["头疼"] * 257), 400)


def tokens(attack: Attack) -> None:
    attack.both(_embed(attack.facts["all"]), _embed(attack.facts["more"]), 400)


def hits(attack: Attack) -> None:
    attack.both(_search(k=1000, hybrid=True), _search(k=1001, hybrid=True), 400)


def one_text(attack: Attack) -> None:
    fits, longer = attack.facts["fits"], attack.facts["longer"]
    attack.both(_search(query=fits, hybrid=True), _search(query=longer, hybrid=True), 400)


def characters(attack: Attack) -> None:
    most = 16 * attack.facts["max_length"]
    attack.both(_search(query="头".ljust(most)), _search(query="头".ljust(most + 1)), 400)


def truncated(attack: Attack) -> None:
    text = many_words() * 15
    attack.both(
        _search(query=text, truncate=True, hybrid=True, k=1000), _search(query=text, hybrid=True, k=1000), 400
    )


def conditions(attack: Attack) -> None:
    def where(number: int) -> dict[str, Any]:
        return {f"m{place:02}": {"gte": 0, "lt": place + 10**6} for place in range(number)}

    attack.both(_search(where=where(64)), _search(where=where(65)), 400)


def values(attack: Attack) -> None:
    def where(number: int) -> dict[str, Any]:
        return {"m00": list(range(7, 7 + number))}

    attack.both(_search(where=where(10_000)), _search(where=where(10_001)), 400)


def queue(attack: Attack) -> None:
    """As many texts as may wait, at once; with thrice as many some callers are sent away."""
    text = _embed(["头疼" * 8] * 256)
    attack.edge = attack.burst(text, {200}, 4)
    attack.beyond = attack.burst(text, {200, 429}, 12)
    attack.note("429" in attack.beyond, "nobody was sent away")


def by_id(attack: Attack) -> None:
    """Documents asked for by 64 callers at once, then by 300, of whom some are sent away."""
    request = b"GET /document?id=d0000001 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    attack.edge = attack.burst(request, {200}, 64)
    attack.beyond = attack.burst(request, {200, 429}, 300)


def fields(attack: Attack) -> None:
    def request(number: int) -> bytes:  # Host, type and length are three
        return post(
            "/search", b'{"query": "x"}', b"".join(b"X-%d: y\r\n" % place for place in range(number - 3))
        )

    attack.both(request(255), request(256), 431)


def head(attack: Attack) -> None:
    def request(size: int) -> bytes:
        """A target and fields of so many bytes."""
        bare = len("/searchHost127.0.0.1Content-Typeapplication/jsonX-LongContent-Length14")
        return post("/search", b'{"query": "x"}', b"X-Long: " + b"x" * (size - bare) + b"\r\n")

    attack.both(request(64 * 1024), request(64 * 1024 + 1), 431)


def trailers(attack: Attack) -> None:
    def request(size: int) -> bytes:
        body = b'{"query": "x"}'
        return (
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body)
            + b"X-Long: " + b"x" * (size - 6) + b"\r\n\r\n"
        )  # fmt: skip

    attack.both(request(64 * 1024), request(64 * 1024 + 1), 431)


def slow_head(attack: Attack) -> None:
    _slow(attack, 0)


def slow_body(attack: Attack) -> None:
    _slow(attack, 1)


def _slow(attack: Attack, part: int) -> None:
    """A hundred requests that end after 8 to 9 s are answered; as many that never end get 408 at 10 s."""
    first, _, second = _search().partition(b"\r\n\r\n")
    slow, rest = ((first, b"\r\n\r\n" + second), (first + b"\r\n\r\n" + second[:1], second[1:]))[part]
    edge = [Connection(attack.port) for _ in range(100)]
    never = [Connection(attack.port) for _ in range(100)]
    for one in (*edge, *never):
        one.send(slow)
    time.sleep(8)
    for one in edge:  # all at once they would be a hundred searches at once, which is another limit
        one.send(rest)
        time.sleep(0.01)
    answers = Counter(one.answer()[0] for one in edge)
    deadline = time.monotonic() + 10
    refused = Counter(_status_by(one, deadline) for one in never)
    attack.edge, attack.beyond = "/".join(map(str, answers)), "/".join(map(str, refused))
    attack.note(set(answers) == {200} and set(refused) == {408}, f"{answers} {refused}")
    for one in (*edge, *never):
        one.close()


def _status_by(one: Connection, deadline: float) -> int | str:
    """Return the status that a connection gets until a deadline, or `open` or `closed`."""
    one.socket.settimeout(max(0.05, deadline - time.monotonic()))
    try:
        return one.answer()[0]
    except TimeoutError:
        return "open"
    except ConnectionError:
        return "closed"


def pipelined(attack: Attack) -> None:
    request = _search(k=1000, hybrid=True)

    def answers(number: int) -> int:
        connection = Connection(attack.port)
        connection.send(
            request * number + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        successes = 0
        with suppress(OSError):
            while True:
                successes += connection.answer()[0] == 200
        connection.close()
        return successes

    edge, beyond = answers(32), answers(100)  # one is answered, 32 wait
    attack.edge, attack.beyond = f"{edge} answers", f"{beyond} answers"
    attack.note(edge == beyond == 33, f"{edge} {beyond}")


def unread(attack: Attack) -> None:
    """Two callers who take 16 KiB of large answers each second, and two who take nothing."""
    request = _search(k=1000, hybrid=True) * 30  # more than the system keeps for them
    slow = [Connection(attack.port, buffer=1 << 15) for _ in range(2)]
    never = [Connection(attack.port, buffer=4096) for _ in range(2)]
    for one in (*slow, *never):
        one.send(request)
    for _ in range(25):
        for one in slow:
            one.socket.settimeout(0.05)
            with suppress(TimeoutError, ConnectionError):
                one.socket.recv(1 << 14)
        time.sleep(1)
    lives = sum(not _ended(one, seconds=0.2) for one in slow)
    dead = sum(_ended(one, seconds=5) for one in never)
    attack.edge, attack.beyond = f"{lives} open", f"{dead} closed"
    attack.note(lives == len(slow) and dead == len(never), f"{lives} {dead}")
    for one in (*slow, *never):
        one.close()


def _ended(one: Connection, *, seconds: float) -> bool:
    """True if the other end has ended the connection.

    What the system holds is read first: the end waits behind data that nobody takes.
    """
    one.socket.settimeout(seconds)
    try:
        while one.socket.recv(1 << 20):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def _alive(one: Connection) -> bool:
    """True while the other end has not ended the connection; nothing waits to be read."""
    info = one.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] == 1  # ESTABLISHED


def connections(attack: Attack) -> None:
    """As many connections as there may be, with the probe; then more, which end the first."""
    with ExitStack() as stack:

        def opened(number: int) -> list[Connection]:
            batch = []
            for _ in range(number):  # a thousand per second
                batch.append(stack.enter_context(closing(Connection(attack.port))))
                time.sleep(0.001)
            return batch

        first = opened(1024 - CALLERS)
        time.sleep(1)
        lives = sum(map(_alive, first))
        opened(100)
        time.sleep(1)
        gone = len(first) - sum(map(_alive, first))
        attack.edge, attack.beyond = f"{lives} open", f"{gone} closed"
        attack.note(lives == len(first) and gone == 100, f"{lives} {gone}")


LIMITS = {
    "max-body": Limit("--max-body: 1 MiB; 413", body),
    "max-texts": Limit("--max-texts: 256; 400", texts),
    "max-tokens": Limit("--max-tokens, or all texts in full; 400", tokens),
    "max-k": Limit("--max-k: 1000; 400", hits),
    "text": Limit("tokens of one text; 400", one_text),
    "characters": Limit("16 characters per token of a text; 400", characters),
    "truncate": Limit("a text that is truncated; 400 without", truncated),
    "conditions": Limit("conditions of a filter: 64; 400", conditions),
    "values": Limit("values of a condition: 10,000; 400", values),
    "queue": Limit("--max-queue: 1024 texts; 429", queue),
    "by-id": Limit("documents requested by id at once: 64; 429", by_id),
    "fields": Limit("fields of a head: 255; 431", fields),
    "head": Limit("bytes of a head: 64 KiB; 431", head),
    "trailers": Limit("bytes of trailers: 64 KiB; 431", trailers),
    "head-time": Limit("time for a head: 10 s; 408", slow_head),
    "body-time": Limit("time for a body: 10 s; 408", slow_body),
    "pipelined": Limit("pipelined requests: 32; closed", pipelined),
    "unread": Limit("64 KiB of a response in 10 s; closed", unread),
    "connections": Limit("--max-connections: 1024; idle longest closed", connections),
}
