"""Speed and correctness of `mar serve`, against the same engine in process on the same machine.

    python benchmarks/serve.py                                  # mar-mini, 5,000 documents, every mode, short
    python benchmarks/serve.py --modes soak --minutes 10
    python benchmarks/serve.py --encoder exported --documents 100000 --queries queries.jsonl

Modes:
    saturation  answers per second of the server under a closed loop, and of `Searcher.search` in process in
                batches of 1, 16 and 64; the ratio is to the best of these
    latency     p50 and p99 at 70 % of the saturation, open loop
    soak        the same for --minutes, with the memory of all server processes
    overload    3 x the saturation, open loop: 429s, and p99 of what was accepted

Every answer is compared with the one computed in process. One JSON line per mode.

The load generator needs processors too. With `--split` it has half of them for itself; the server and the
engine in process have the other half, each when it is its turn.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parent))
from measured import apart, machine
from serve_load import Question, Result, ask_all

ROOT = Path(__file__).parents[1]
TASK = ROOT / "tasks" / "MedTEBRetrieval"
MODES = ("saturation", "latency", "soak", "overload")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", help="exported encoder; default: export mar-mini")
    parser.add_argument("--index", help="index of its space; default: build one of --documents")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--queries", type=Path, default=TASK / "queries.jsonl")
    parser.add_argument("--distinct", type=int, default=300, help="queries that are asked in turn")
    parser.add_argument("--modes", default="saturation,latency,overload")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--timeout", type=float, default=10)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--hybrid", action="store_true")
    parser.add_argument("--split", action="store_true", help="processors of the load apart from the server's")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    if set(modes) - set(MODES):
        parser.error(f"modes are {', '.join(MODES)}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted if hard < 0 else min(wanted, hard)), hard))
    with tempfile.TemporaryDirectory(prefix="serve-bench-") as folder:
        run(arguments, modes, Path(folder))


def run(arguments: argparse.Namespace, modes: list[str], folder: Path) -> None:
    texts = [json.loads(line)["text"] for line in arguments.queries.open(encoding="utf-8")][
        : arguments.distinct
    ]
    encoder = arguments.encoder or str(apart(export_mini, folder / "encoder"))
    index = arguments.index or str(apart(make_index, folder, encoder, arguments.documents))
    common = {
        "machine": machine(), "encoder": arguments.encoder or "mar-mini", "index": arguments.index,
        "documents": arguments.documents, "k": arguments.k, "hybrid": arguments.hybrid,
        "split": arguments.split,
    }  # fmt: skip
    engine, questions = apart(
        in_process, index, encoder, texts, arguments.k, arguments.hybrid, arguments.seconds,
        on=halves(arguments.split)[0],
    )  # fmt: skip
    measure(index, encoder, modes, engine, questions, common, arguments)


def measure(
    index: str,
    encoder: str,
    modes: list[str],
    engine: dict[str, float],
    questions: list[Question],
    common: dict[str, Any],
    arguments: argparse.Namespace,
) -> None:
    """Print the figures of the server."""
    server = Server(index, encoder, arguments)
    try:
        ask(server, questions, 8, 2.0)  # warm
        before = server.processor_seconds()
        saturated = ask(server, questions, arguments.connections, arguments.seconds)
        spent = server.processor_seconds() - before
        rate = len(saturated.latencies) / saturated.seconds
        for mode in modes:
            figures = {
                "saturation": lambda: {
                    "in_process_per_s": engine,
                    "share": round(rate / max(engine.values()), 3),
                    "connections": arguments.connections,
                    "processor_ms_per_answer": round(1000 * spent / sum(saturated.statuses.values()), 2),
                    **saturated.summary(),
                },
                "latency": lambda: {
                    "rate": round(0.7 * rate, 1),
                    **ask(server, questions, 1024, arguments.seconds, 0.7 * rate).summary(),
                },
                "soak": lambda: soak(server, questions, 0.7 * rate, arguments),
                "overload": lambda: {
                    "rate": round(3 * rate, 1),
                    "timeout_ms": 1000 * arguments.timeout,
                    **ask(server, questions, 4000, arguments.seconds, 3 * rate).summary(),
                },
            }[mode]()
            print(
                json.dumps({"mode": mode, **common, **figures, "server_mb": server.memory()}),
                flush=True,
            )
    finally:
        code = server.stop()
    if code != 0:
        raise SystemExit(f"the server ended with {code}")


def halves(split: bool) -> tuple[set[int], set[int]]:
    """Processors of the server, and of the load."""
    every = sorted(os.sched_getaffinity(0))
    middle = len(every) // 2
    return (set(every[middle:]), set(every[:middle])) if split and middle else (set(every), set(every))


def export_mini(out: Path) -> Path:
    from mar_st.export import ExportSettings, export

    export(ExportSettings(model="mar-mini", out=out))
    return out


def make_index(folder: Path, encoder: str, documents: int) -> Path:
    """An exact index of vectors around those of the packaged documents' first words."""
    import numpy as np

    from mar_st.encode.folder import write_vectors
    from mar_st.index.build import build_index
    from mar_st.online.encoders import load_query_encoder

    rows = [json.loads(line) for line in (TASK / "corpus.jsonl").open(encoding="utf-8")]
    loaded = load_query_encoder(encoder)
    kept = [rows[number % len(rows)] for number in range(documents)]
    distinct = rows[: min(len(rows), documents, 2000)]
    base = np.concatenate(
        [
            loaded.encode([row["text"][:64] for row in distinct[at : at + 64]])
            for at in range(0, len(distinct), 64)
        ]
    )
    random = np.random.default_rng(0)
    vectors = base[np.arange(documents) % len(base)]
    vectors = vectors + random.normal(0, 0.3 / loaded.dim**0.5, vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"d{number:07d}" for number in range(documents)]
    corpus = folder / "corpus.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for name, row in zip(ids, kept, strict=True):
            entry = {"_id": name, "title": row.get("title", ""), "text": row["text"]}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    write_vectors(folder / "vectors", ids, vectors, space=loaded.space)
    build_index(folder / "vectors", folder / "index", corpus=corpus, kind="exact", progress=False)
    return folder / "index"


def in_process(
    index: str, encoder: str, texts: list[str], k: int, hybrid: bool, seconds: float
) -> tuple[dict[str, float], list[Question]]:
    """Queries per second of `Searcher.search` by batch size, and the questions with their right answers."""
    from mar_st.index.searcher import Searcher

    searcher = Searcher.open(index, encoder)
    questions = []
    for text in texts:
        hits = searcher.search([text], k, hybrid=hybrid)[0]
        body = json.dumps({"query": text, "k": k, "hybrid": hybrid, "truncate": True}).encode()
        head = (
            b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        questions.append(Question(head + body, [hit.id for hit in hits], [hit.score for hit in hits]))
    speeds = {}
    for size in (1, 16, 64):
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds / 3:
            batch = [texts[(done + number) % len(texts)] for number in range(size)]
            searcher.search(batch, k, hybrid=hybrid)
            done += size
        speeds[str(size)] = round(done / (time.perf_counter() - began), 1)
    return speeds, questions


def ask(
    server: Server, questions: list[Question], connections: int, seconds: float, rate: float | None = None
) -> Result:
    return apart(ask_all, server.port, questions, connections, seconds, rate, on=server.load)


def soak(
    server: Server, questions: list[Question], rate: float, arguments: argparse.Namespace
) -> dict[str, Any]:
    """A long load; memory after the first tenth of it against the end.

    A connection takes memory, which is used again when it is closed but not given back; so there are as many
    as were open for the saturation.
    """
    seconds = 60 * arguments.minutes
    samples: list[tuple[float, float]] = []
    stop = threading.Event()

    def sample() -> None:
        began = time.monotonic()
        while not stop.wait(min(5.0, seconds / 20)):
            samples.append((time.monotonic() - began, server.memory()))

    thread = threading.Thread(target=sample)
    thread.start()
    result = ask(server, questions, arguments.connections, seconds, rate)
    stop.set()
    thread.join()
    early = [memory for at, memory in samples if at > seconds / 10][:3]
    late = [memory for _, memory in samples][-3:]
    first, last = sum(early) / len(early), sum(late) / len(late)
    return {
        "rate": round(rate, 1), "first_mb": round(first, 1), "last_mb": round(last, 1),
        "growth": round(last / first - 1, 4), **result.summary(),
    }  # fmt: skip


class Server:
    """`mar serve` as a process."""

    def __init__(self, index: str, encoder: str, arguments: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "mar_st.cli", "serve", index, "--encoder", encoder, "--port", "0"]
        command += ["--timeout", str(arguments.timeout)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE, text=True,
            preexec_fn=functools.partial(os.sched_setaffinity, 0, halves(arguments.split)[0]),
        )  # fmt: skip
        self.load = halves(arguments.split)[1]
        line = self.process.stdout.readline()
        if not line.startswith("listening on"):
            raise SystemExit(f"the server did not start: {line}")
        self.port = int(line.rsplit(":", 1)[1])
        if httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code != 200:
            raise SystemExit("the server is not ready")

    def memory(self) -> float:
        """Proportional set size of the server, MB."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return round(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024, 1)

    def processor_seconds(self) -> float:
        """Processor time that the server has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


if __name__ == "__main__":
    main()
