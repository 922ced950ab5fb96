"""Wall time and memory of commands, and of loading an object in a process; Linux only."""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: Seconds between two looks at the memory of a process.
POLL_SECONDS = 0.2
#: Least memory, MiB, that the machine keeps free for others; a command that leaves less is stopped.
MIN_FREE_MIB = 700
#: Lines of a log that a failure shows.
TAIL_LINES = 15


def age() -> float:
    """Return seconds since this process was started, the start of Python included."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """Time and memory of a command.

    Attributes:
        seconds: Wall time.
        cpu_seconds: Time of processors, of all its processes.
        peak_mb: Resident memory at most, of the command and the processes it started together, in MiB. Pages
            of files that are mapped count, as the kernel counts them.
        own_mb: The same without pages of files: what the system cannot take back.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    own_mb: float


def run(
    command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Measured:
    """Run a command to its end, its output in a file.

    Raises:
        SystemExit: It failed, or memory ran out; the message has the end of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    peak = own = 0.0
    short = False
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env={**os.environ, **(env or {})}
        )
        try:
            while process.poll() is None:
                held = [_held(one) for one in _tree(process.pid)]
                peak = max(peak, sum(all_ for all_, _, _ in held), *(high for _, _, high in held), 0.0)
                own = max(own, sum(mine for _, mine, _ in held))
                if psutil.virtual_memory().available < MIN_FREE_MIB * 2**20:
                    short = True
                    process.kill()
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
        why = "was stopped: memory ran out" if short else f"ended with {process.returncode}"
        raise SystemExit(f"{' '.join(command)} {why} (log: {log}):\n{tail}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(round(time.monotonic() - started, 1), round(used, 1), round(peak), round(own))


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    pids = [pid]
    for one in pids:
        for path in Path("/proc", str(one), "task").glob("*/children"):
            with suppress(OSError):  # it has ended
                pids.extend(map(int, path.read_text().split()))
    return pids


def _held(pid: int | str) -> tuple[float, float, float]:
    """Resident memory of a process in MiB: all, without files, and the most so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0, 0.0
    memory = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)
             if name in ("VmRSS", "RssAnon", "RssShmem", "VmHWM")}  # fmt: skip
    own = memory.get("RssAnon", 0.0) + memory.get("RssShmem", 0.0)
    return memory.get("VmRSS", 0.0), own, memory.get("VmHWM", 0.0)


def loading(
    load: Callable[[], Any],
    weights: Callable[[Any], int],
    tokenizers: Sequence[Path] = (),
    *,
    check: Callable[[Any], None] | None = None,
) -> dict[str, float]:
    """Load something in a forked process; what this one has imported is not counted.

    Args:
        load: Loads a model.
        weights: Bytes of what was loaded.
        tokenizers: Folders whose tokenizers are part of it.
        check: Told of what was loaded, after it was measured.

    Returns:
        `seconds`; `weights_mb` and `tokenizers_mb`, the size of both; `peak_mb` and `own_mb`, the growth at
        most with and without pages of files, until every weight has been read once; `held_mb` afterwards;
        `ratio`, the growth at most in relation to that size.

    Raises:
        SystemExit: It failed.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_load, args=(load, weights, tokenizers, check, send))
    process.start()
    send.close()
    try:
        usage: dict[str, float] = receive.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"loading failed with exit code {process.exitcode}") from None
    process.join()
    return usage


def _load(
    load: Callable[[], Any],
    weights: Callable[[Any], int],
    tokenizers: Sequence[Path],
    check: Callable[[Any], None] | None,
    send: Any,
) -> None:
    import torch

    from mar_st.kernels.build import trim

    torch.set_num_threads(1)  # the threads of a forked process are gone, and OpenMP would wait for them

    def settled() -> tuple[float, float]:
        gc.collect()
        trim()
        return _held("self")[:2]

    # Libraries that both steps use come in before either is measured.
    _tokenizers(())
    torch.nn.Linear(64, 64).weight.detach().sum()
    settled()  # a process that has done much before has much to give back, and not all of it the first time
    start, _ = settled()
    kept = _tokenizers(tokenizers)
    extra = settled()[0] - start if tokenizers else 0.0
    del kept
    start, start_own = settled()
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is the present
    began = time.monotonic()
    with _highest() as seen:
        model = load()
        seconds = time.monotonic() - began
        for parameter in model.parameters():  # pages of mapped files come in when they are read
            parameter.detach().sum()
        peak = max(seen["peak"], _held("self")[2]) - start
    own = seen["own"] - start_own
    held, _ = settled()
    size = weights(model) / 2**20
    if check is not None:
        check(model)
    send.send({
        "seconds": round(seconds, 1), "weights_mb": round(size, 1), "tokenizers_mb": round(extra, 1),
        "peak_mb": round(peak, 1), "own_mb": round(own, 1), "held_mb": round(held - start, 1),
        "ratio": round(peak / (size + extra), 3),
    })  # fmt: skip
    sys.stdout.flush()
    os._exit(0)  # taking a large model apart takes time


def _tokenizers(folders: Sequence[Path]) -> list[Any]:
    from transformers import AutoTokenizer

    return [AutoTokenizer.from_pretrained(folder) for folder in folders]


@contextmanager
def _highest() -> Iterator[dict[str, float]]:
    """Resident memory of this process at most, in MiB: `peak`, and `own` without pages of files."""
    seen = {"peak": 0.0, "own": 0.0}
    stop = threading.Event()

    def look() -> None:
        held, own, _ = _held("self")
        seen["peak"], seen["own"] = max(seen["peak"], held), max(seen["own"], own)

    def watch() -> None:
        while not stop.wait(0.01):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        look()


def weight_bytes(model: Any) -> int:
    """Bytes of the parameters and buffers of a model; shared ones count once."""
    tensors = {t.data_ptr(): t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def apart(function: Any, *arguments: Any, on: set[int] | None = None) -> Any:
    """Call a function in a process of its own, so that its threads and memory are gone afterwards."""
    place = {"initializer": os.sched_setaffinity, "initargs": (0, on)} if on else {}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), **place) as pool:
        return pool.submit(function, *arguments).result()


def machine() -> str:
    """Processors that this process may use, and what they are."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return f"{len(os.sched_getaffinity(0))} x {model}"
