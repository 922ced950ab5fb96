"""Every limit of `mar serve` at its edge, with a client beside it that searches all the time.

    python benchmarks/limits.py                       # mar-mini, 5,000 documents; some four minutes
    python benchmarks/limits.py --only max-k values   # some limits
    python benchmarks/limits.py --encoder exported --documents 100000

For each limit a client sends, again and again, a request that is just accepted, then one that is just beyond
the limit. The answers must be as documented. Beside it, another process searches with a short query forty
times a second; it counts from the planned moment, so a server that stands still does not slow down its own
measurement. Its p99 may be 5 times that of a server without other work at most (`--times`).

The exit status is 1 if an answer is wrong or a limit does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

sys.path.insert(0, str(Path(__file__).parent))
import serve
from measured import apart, machine

if TYPE_CHECKING:
    from collections.abc import Callable

#: Metadata fields of the index: one more than a filter may have conditions.
FIELDS = 65
#: Probes per second, and callers that take turns with them: each has 400 ms before its next one is late.
RATE, CALLERS = 40.0, 16
#: Seconds that anybody waits for an answer.
PATIENCE = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", help="exported encoder; default: export mar-mini")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=4, help="for each request of a limit")
    parser.add_argument("--times", type=float, default=5, help="p99 beside a limit over p99 without")
    parser.add_argument("--only", nargs="*", help="names of limits")
    parser.add_argument("--out", type=Path, help="write the table there, too, as JSON lines")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(LIMITS)
    if unknown:
        parser.error(f"no limit {', '.join(sorted(unknown))}; there are {', '.join(LIMITS)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, hard) if hard > 0 else 16_384, hard))
    with tempfile.TemporaryDirectory(prefix="limits-bench-") as folder:
        sys.exit(0 if measure(arguments, Path(folder)) else 1)


def measure(arguments: argparse.Namespace, folder: Path) -> bool:
    """Walk the table; true if all of it holds."""
    encoder = arguments.encoder or str(apart(serve.export_mini, folder / "encoder"))
    index = apart(make_index, folder, encoder, arguments.documents)
    facts = apart(made_texts, encoder)
    options = argparse.Namespace(workers=1, timeout=10, split=False)
    print(f"{machine()}; {arguments.encoder or 'mar-mini'}, {arguments.documents} documents", flush=True)
    server = serve.Server(index, encoder, options)
    good = True
    rows = []
    try:
        with Probe(server.port) as probe:
            time.sleep(3)  # warm
            began = time.monotonic()
            time.sleep(max(8.0, 2 * arguments.seconds))
            idle = probe.since(began)
            print(f"{'limit':14} {'documented':42} {'edge':>10} {'beyond':>10} {'p50':>7} {'p99':>7}  times")
            print(f"{'idle':14} {'':42} {'':>10} {'':>10} {idle.p50:7.1f} {idle.p99:7.1f}", flush=True)
            for name, limit in LIMITS.items():
                if arguments.only and name not in arguments.only:
                    continue
                attack = Attack(server.port, arguments.seconds, facts)
                before = time.monotonic()
                limit.run(attack)
                times = probe.since(before)
                right = attack.right and times.failed == 0
                ratio = times.p99 / idle.p99
                holds = right and ratio <= arguments.times
                good &= holds
                print(
                    f"{name:14} {limit.documented:42} {attack.edge:>10} {attack.beyond:>10} {times.p50:7.1f} "
                    f"{times.p99:7.1f} {ratio:6.1f}{'' if holds else '  FAILS' + attack.wrong}", flush=True,
                )  # fmt: skip
                rows.append(
                    {"limit": name, "documented": limit.documented, "edge": attack.edge,
                     "beyond": attack.beyond, "idle_p50_ms": idle.p50, "idle_p99_ms": idle.p99,
                     "p50_ms": times.p50, "p99_ms": times.p99, "ratio": round(ratio, 2), "holds": holds}
                )  # fmt: skip
                time.sleep(1)
    finally:
        code = server.stop()
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return good and code == 0


# -- the client beside --


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
        found = sorted((took, status) for due, took, status in self._mine.recv() if due >= began)
        took = [1000 * seconds for seconds, _ in found]
        failed = sum(status != 200 for _, status in found)
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
        connection = Connection(port)
        for turn in itertools.count():
            due = began + (turn * CALLERS + place) / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                connection.send(request)
                status = connection.answer()[0]
            except OSError:
                connection.close()
                connection, status = Connection(port), 0
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

    def __init__(self, port: int, *, buffer: int | None = None) -> None:
        self.socket, self.closed = socket.socket(), False
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE)
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


# -- the limits --


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

    def repeat(self, request: bytes, wanted: set[int], clients: int, *, every: float = 0.0) -> str:
        """Ask again when there is an answer, or all at once `every` so often; say which statuses came."""
        began = time.monotonic()
        until = began + self.seconds
        statuses: Counter[int] = Counter()

        def ask() -> None:
            connection = Connection(self.port)
            while (now := time.monotonic()) < until:
                time.sleep(every and (began - now) % every)
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
        self.note(bool(statuses) and set(statuses) <= wanted, f"{dict(statuses)}")
        return "/".join(str(status) for status in sorted(statuses))

    def note(self, right: bool, found: str) -> None:
        if not right:
            self.right, self.wrong = False, f"{self.wrong} {found}"


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
    attack.edge = attack.repeat(text, {200}, 4, every=1)
    attack.beyond = attack.repeat(text, {200, 429}, 12, every=1)
    attack.note("429" in attack.beyond, "nobody was sent away")


def by_id(attack: Attack) -> None:
    """Documents asked for by 64 callers at once, then by 300, of whom some are sent away."""
    request = b"GET /document?id=d0000001 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    attack.edge = attack.repeat(request, {200}, 64, every=1)
    attack.beyond = attack.repeat(request, {200, 429}, 300, every=1)


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
    """A hundred requests that come in 8 s are answered; as many that never end get a 408 after 10 s."""
    first, _, second = _search().partition(b"\r\n\r\n")
    slow, rest = ((first, b"\r\n\r\n" + second), (first + b"\r\n\r\n" + second[:1], second[1:]))[part]
    edge = [Connection(attack.port) for _ in range(100)]
    never = [Connection(attack.port) for _ in range(100)]
    for one in (*edge, *never):
        one.send(slow)
    time.sleep(8)
    for one in edge:
        one.send(rest)
    answers = Counter(one.answer()[0] for one in edge)
    refused = Counter(one.answer()[0] for one in never)
    attack.edge, attack.beyond = "/".join(map(str, answers)), "/".join(map(str, refused))
    attack.note(set(answers) == {200} and set(refused) == {408}, f"{answers} {refused}")
    for one in (*edge, *never):
        one.close()


def pipelined(attack: Attack) -> None:
    request = _search(k=1000, hybrid=True)

    def answers(number: int) -> int:
        connection = Connection(attack.port)
        connection.send(
            request * number + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        found = 0
        with suppress(OSError):
            while True:
                found += connection.answer()[0] == 200
        connection.close()
        return found

    edge, beyond = answers(32), answers(100)  # one is answered, 32 wait
    attack.edge, attack.beyond = f"{edge} answers", f"{beyond} answers"
    attack.note(edge == beyond == 33, f"{edge} {beyond}")


def unread(attack: Attack) -> None:
    """Two callers who take 16 KiB of large answers each second, and two who take nothing."""
    request = _search(k=1000, hybrid=True) * 5  # more than the system keeps for them
    slow = [Connection(attack.port, buffer=4096) for _ in range(2)]
    never = [Connection(attack.port, buffer=4096) for _ in range(2)]
    for one in (*slow, *never):
        one.send(request)
    for _ in range(25):
        for one in slow:
            one.socket.settimeout(0.05)
            with suppress(TimeoutError):
                one.socket.recv(1 << 14)
        time.sleep(1)
    lives = sum(map(_alive, slow))
    dead = sum(not _alive(one) for one in never)
    attack.edge, attack.beyond = f"{lives} open", f"{dead} closed"
    attack.note(lives == len(slow) and dead == len(never), f"{lives} {dead}")
    for one in (*slow, *never):
        one.close()


def _alive(one: Connection) -> bool:
    """True while the other end has not ended the connection."""
    info = one.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] == 1  # ESTABLISHED


def connections(attack: Attack) -> None:
    """As many connections as there may be, with the probe; then more, which end the first."""
    with ExitStack() as stack:

        def opened(number: int) -> list[Connection]:
            found = []
            for _ in range(number):  # a thousand per second
                found.append(stack.enter_context(closing(Connection(attack.port))))
                time.sleep(0.001)
            return found

        first = opened(4096 - CALLERS)
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
    "by-id": Limit("documents asked for by id at once: 64; 429", by_id),
    "fields": Limit("fields of a head: 255; 431", fields),
    "head": Limit("bytes of a head: 64 KiB; 431", head),
    "trailers": Limit("bytes of trailers: 64 KiB; 431", trailers),
    "head-time": Limit("time for a head: 10 s; 408", slow_head),
    "body-time": Limit("time for a body: 10 s; 408", slow_body),
    "pipelined": Limit("pipelined requests: 32; closed", pipelined),
    "unread": Limit("64 KiB of a response in 10 s; closed", unread),
    "connections": Limit("--max-connections: 4096; idle longest closed", connections),
}


# -- what is served --


def make_index(folder: Path, encoder: str, documents: int) -> str:
    """The index of `benchmarks/serve.py`, with metadata."""
    return str(serve.make_index(folder, encoder, documents, fields=FIELDS))


def made_texts(encoder: str) -> dict[str, Any]:
    """Texts with as many tokens as the encoder takes, and with one more."""
    from mar_st.online import load_query_encoder

    loaded = load_query_encoder(encoder)
    chars = json.loads((serve.TASK / "corpus.jsonl").open(encoding="utf-8").readline())["text"]
    one = next(
        char
        for char in chars
        if loaded.count_tokens([char * 20])[0] - loaded.count_tokens([char * 10])[0] == 10
    )
    extra = loaded.count_tokens([one])[0] - 1
    room = loaded.max_length - extra
    each = min(loaded.max_length, 65_536 // 256)
    within = [one * (each - extra)] * 256
    return {
        "max_length": loaded.max_length,
        "fits": one * room,
        "longer": one * (room + 1),
        "all": within,
        "more": [*within[:-1], one * (each - extra + 1)],
    }


if __name__ == "__main__":
    main()
