"""The sides that `benchmarks/query.py` compares: the machine itself, and ways to encode queries."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

#: Queries that are asked one by one before any is timed,
WARM_UP_QUERIES = 150


def read_queries(path: str) -> list[str]:
    """Distinct queries of a JSONL file."""
    with Path(path).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return list(dict.fromkeys(row.get("text") or row["query"] for row in rows))


class Apart:
    """A process that answers calls; it waits without computing while others are measured.

    It reads a JSON line per call, `[name, arguments]`, and answers each with one; its first line is `ready`.

    Args:
        command: What to start.
        name: Names it in messages.
        env: Its environment; default this one's.
        log: File that takes its error output; default this one's.
        limit: Seconds that an answer may take; then it is stopped.

    Raises:
        SystemExit: It ended, here or in a call.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        limit: float | None = None,
    ) -> None:
        self.name, self._limit = name, limit
        errors = None if log is None else log.open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        )
        if errors is not None:
            errors.close()
        self.ready = self._read(name)

    def _read(self, what: str) -> Any:
        watch = None if self._limit is None else threading.Timer(self._limit, self._process.kill)
        if watch is not None:
            watch.daemon = True
            watch.start()
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if watch is not None:
            watch.cancel()
        if not line:
            raise SystemExit(f"{what} ended with status {self._process.wait()}")
        return json.loads(line)

    def call(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        return self._read(f"{self.name}, {name}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()

    def kill(self) -> None:
        """Stop it at once, if it runs."""
        self._process.kill()
        self._process.communicate()


class Machine:
    """Memory bandwidth and arithmetic speed of this machine, measured now."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        torch.set_num_threads(options.threads)
        self._buffers: dict[int, Any] = {}
        n = 2048
        dense = torch.randn(n, n)
        half = dense.bfloat16()
        whole = torch.randint(-100, 100, (n, n), dtype=torch.int8)
        self._products = {
            "fp32": lambda: dense @ dense, "bf16": lambda: half @ half,
            "int8": lambda: torch._int_mm(whole, whole),
        }  # fmt: skip
        self._work = 2 * n**3

    def speed(self, precision: str, weights: int, seconds: float) -> dict[str, float]:
        """GB/s of reading `weights` bytes, and GFLOP/s of the best products in a precision or a wider one."""
        import torch

        if weights not in self._buffers:
            self._buffers[weights] = torch.ones(weights // 4)
        names = {"fp32": ("fp32",), "bf16": ("bf16",), "int8": ("bf16", "int8")}[precision]
        # torch's int8 product does not reach its processor's peak everywhere; bfloat16's is a lower estimate.
        peak = max(self._best(self._products[name], self._work, seconds) for name in names)
        read = self._best(self._buffers[weights].sum, weights, seconds)
        return {"read_gb_s": read / 1e9, "peak_gflop_s": peak / 1e9}

    @staticmethod
    def _best(call: Any, work: float, seconds: float) -> float:
        call()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return work / min(times)


def asked_at_once(ask: Any, texts: list[str], callers: int, seconds: float) -> dict[str, float]:
    """Queries per second of callers that each ask again as soon as they are answered, after a warm-up."""
    stop, counted = threading.Event(), threading.Event()
    times: list[list[float]] = [[] for _ in range(callers)]

    def run(number: int) -> None:
        position = number * len(texts) // callers
        while not stop.is_set():
            started = time.perf_counter()
            ask(texts[position % len(texts)])
            if counted.is_set():
                times[number].append(time.perf_counter() - started)
            position += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    time.sleep(min(seconds / 3, 3))
    counted.set()
    started = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    elapsed = time.perf_counter() - started
    for thread in threads:
        thread.join()
    every = [value for row in times for value in row]
    return {
        "per_second": round(len(every) / elapsed, 2),
        "callers_p50_ms": round(float(np.median(every)) * 1e3, 2),
        "callers_p99_ms": round(float(np.quantile(every, 0.99)) * 1e3, 2),
    }


class Side:
    """A way to encode queries, measured in this process.

    Args:
        options: `side` is `baseline` (sentence-transformers in float32) or a form of the exported encoder.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        from measured import age

        self.options = options
        self.texts = read_queries(options.queries)[1::2]
        self._sizes: list[float] = []
        if options.side == "baseline":
            self._load_baseline()
        else:
            self._load_exported()
        self.encode(self.texts[:1])
        self.start = age()
        self.encode(self.texts[:32] if options.side == "baseline" else self.texts)
        for text in self.texts[:WARM_UP_QUERIES]:
            self.encode([text])

    def _load_baseline(self) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(self.options.threads)
        self._model = SentenceTransformer(str(self.options.out / "model"), device="cpu")
        self.encode = lambda some: self._model.encode_query(list(some))
        self.lengths = [len(self._model.tokenizer(text)["input_ids"]) for text in self.texts]
        lock = threading.Lock()  # its tokenizer may not be used from two threads at once

        def ask(text: str) -> None:
            with lock:
                self.encode([text])

        self._ask = ask

    def _load_exported(self) -> None:
        from mar_st.online.batcher import MicroBatcher
        from mar_st.online.encoders import load_query_encoder

        encoder: Any = load_query_encoder(
            self.options.out / "exported", backend=self.options.side, threads=self.options.threads
        )
        self.encode = encoder.encode
        self.lengths = encoder.count_tokens(self.texts)
        sizes = self._sizes
        observe = lambda name, value: sizes.append(value) if name == "batch_size" else None  # noqa: E731
        batcher = MicroBatcher(encoder, observe=observe)
        self._ask = lambda text: batcher.submit([text]).result()

    def single(self, first: int, count: int) -> list[float]:
        """Seconds of queries asked one by one."""
        seconds = []
        for number in range(first, first + count):
            text = [self.texts[number % len(self.texts)]]
            started = time.perf_counter()
            self.encode(text)
            seconds.append(time.perf_counter() - started)
        return seconds

    def many(self, seconds: float) -> dict[str, float]:
        """Queries per second of callers that ask at once."""
        return asked_at_once(self._ask, self.texts, self.options.callers, seconds)

    def facts(self) -> dict[str, Any]:
        """Return the measurements that do not vary over time."""
        figures = {
            "tokens_p50": statistics.median(self.lengths),
            "tokens_mean": round(statistics.mean(self.lengths), 1),
            "start_s": round(self.start, 2),
            "rss_mb": round(psutil.Process().memory_info().rss / 1e6, 1),
        }
        if self._sizes:
            figures["batch_mean"] = round(statistics.mean(self._sizes), 1)
        return figures

    def batches(self) -> dict[str, float]:
        """Milliseconds per query in batches of 32, and what padding costs."""
        texts, lengths = self.texts, dict(zip(self.texts, self.lengths, strict=True))
        batches = [texts[i : i + 32] for i in range(0, min(len(texts), 128) - 31, 32)] or [texts]
        by_length = sorted(texts, key=lengths.__getitem__)
        middle = by_length[len(by_length) // 2 - 16 :][:32]
        figures = {}
        for name, some in (("batch32", batches), ("batch32_equal", [middle] * 2)):
            self.encode(some[0])
            started = time.perf_counter()
            for batch in some:
                self.encode(batch)
            seconds = time.perf_counter() - started
            figures[f"{name}_ms_per_query"] = round(seconds / sum(map(len, some)) * 1e3, 2)
        columns = sum(max(lengths[text] for text in batch) * len(batch) for batch in batches)
        figures["padding"] = round(columns / sum(lengths[text] for batch in batches for text in batch), 2)
        return figures
