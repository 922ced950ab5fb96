"""Measuring one variant in a separate process.

A fresh process shows the memory that a server would need, and a runtime that crashes on this processor
affects nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.online import load_query_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Maximum texts that are timed one by one, rounds over them, and texts per call when throughput is measured.
TIMED_TEXTS, ROUNDS, BATCH_TEXTS = 64, 3, 16


def measure(
    folder: Path, variant: str, texts: Sequence[str], *, threads: int | None = None
) -> tuple[np.ndarray, dict[str, float]]:
    """Encode texts with a variant, and time it.

    Args:
        folder: An exported folder.
        variant: Name of the variant.
        texts: Queries, without prompts.
        threads: Threads per call.

    Returns:
        Vectors `(len(texts), dim)` and `p50_ms` of one query, `per_second` in calls of `BATCH_TEXTS` queries,
        `rss_mb`, and `alone_cosine`, the smallest cosine of a text's vectors computed alone and together.

    Raises:
        MarError: The process ended with an error or a signal.
    """
    with tempfile.TemporaryDirectory() as scratch:
        request, vectors = Path(scratch, "request.json"), Path(scratch, "vectors.npy")
        request.write_text(json.dumps([str(folder), variant, list(texts), threads]), encoding="utf-8")
        command = [sys.executable, "-m", "mar_st.export.measure", str(request), str(vectors)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.run(  # noqa: S603 -- our own module
            command, capture_output=True, text=True, check=False, env=environment
        )
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or [""])[-1]
            raise MarError(f"computing it ended with status {process.returncode} {reason}".strip())
        report: dict[str, float] = json.loads(process.stdout.strip().splitlines()[-1])
        return np.load(vectors, allow_pickle=False), report


def timings(
    call: Callable[[Sequence[str]], Any], texts: Sequence[str], *, rounds: int = ROUNDS
) -> list[float]:
    """Return the seconds of each call with one text, over some rounds, after one that is not counted."""
    for text in texts:
        call([text])
    seconds = []
    for _ in range(rounds):
        for text in texts:
            started = time.perf_counter()
            call([text])
            seconds.append(time.perf_counter() - started)
    return seconds


def speed(call: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> dict[str, float]:
    """Return `p50_ms` of a call with one text, and texts `per_second` in calls of `BATCH_TEXTS`."""
    seconds = timings(call, texts[:TIMED_TEXTS])
    blocks = [texts[start : start + BATCH_TEXTS] for start in range(0, min(len(texts), 128), BATCH_TEXTS)]
    for block in blocks:
        call(block)
    started = time.perf_counter()
    for block in blocks:
        call(block)
    return {
        "p50_ms": round(float(np.median(seconds)) * 1e3, 3),
        "per_second": round(sum(map(len, blocks)) / (time.perf_counter() - started), 1),
    }


def resident_mb() -> float:
    """Return memory of this process that is in RAM, in MB (10^6 bytes); 0 if it is unknown."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return 0.0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosine of each row with the same row of another array, `(n,)` float64."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    similarities: np.ndarray = np.einsum("ij,ij->i", first, second) / np.maximum(norms, 1e-30)
    return similarities


def _main(request: str, output: str) -> None:
    folder, variant, texts, threads = json.loads(Path(request).read_text(encoding="utf-8"))
    encoder = load_query_encoder(folder, backend=variant, threads=threads)
    first = encoder.encode(texts[:1])
    together = encoder.encode(texts)
    np.save(output, together)
    alone = np.concatenate([first, *(encoder.encode([text]) for text in texts[1:TIMED_TEXTS])])
    report = {
        **speed(encoder.encode, texts),
        "alone_cosine": round(float(cosines(alone, together[: len(alone)]).min()), 6),
        "rss_mb": round(resident_mb(), 1),
    }
    print(json.dumps(report))  # noqa: T201 -- read by the process that asked


if __name__ == "__main__":
    _main(*sys.argv[1:])
