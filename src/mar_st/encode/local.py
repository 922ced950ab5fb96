"""Distributing shards to processes on this machine, on its GPUs or on its CPU."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from dataclasses import replace
from queue import Empty
from typing import TYPE_CHECKING, Any

from mar_st.encode.worker import EncodeJob, Worker
from mar_st.errors import MarError
from mar_st.kernels.processor import processors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Seconds between two checks that the workers are still running.
_POLL_SECONDS = 1.0


def run_here(job: EncodeJob, numbers: Sequence[int], done: Callable[[int], None]) -> None:
    """Encode shards in this process."""
    Worker(job).run(numbers, done)


def run_processes(
    job: EncodeJob, numbers: Sequence[int], done: Callable[[int], None], devices: Sequence[str]
) -> None:
    """Encode shards in one process per device; a process takes the next shard when it has finished one.

    Args:
        job: The job; its device and threads are replaced.
        numbers: Numbers of the shards.
        done: Called with the number of each finished shard, in any order.
        devices: One device per process; several processes on `cpu` share the processors.

    Raises:
        MarError: A worker raised an error or was killed.
    """
    context = multiprocessing.get_context("spawn")
    devices = devices[: len(numbers)]
    taken, reports = context.Value("q", 0), context.Queue()
    on_cpu = sum(device == "cpu" for device in devices)
    threads = max(1, (job.threads or processors()) // on_cpu) if on_cpu else None
    workers = [
        context.Process(
            target=_work,
            args=(replace(job, device=device, threads=threads), tuple(numbers), taken, reports, os.getpid()),
            daemon=True,
        )
        for device in devices
    ]
    for worker in workers:
        worker.start()
    missing = len(numbers)
    try:
        while missing:
            try:
                kind, content = reports.get(timeout=_POLL_SECONDS)
            except Empty:
                dead = [worker for worker in workers if worker.exitcode]
                if dead:
                    raise MarError(
                        f"A worker process ended with exit code {dead[0].exitcode} (killed, or out of "
                        "memory?). Run the command again to resume, maybe with fewer workers."
                    ) from None
                continue
            if kind == "error":
                raise MarError(content)
            done(content)
            missing -= 1
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(job: EncodeJob, numbers: tuple[int, ...], taken: Any, reports: Any, parent: int) -> None:
    def own() -> Iterator[int]:
        while os.getppid() == parent:  # else the parent was killed, and a new run may have started
            with taken.get_lock():
                place, taken.value = taken.value, taken.value + 1
            if place >= len(numbers):
                return
            yield numbers[place]

    try:
        Worker(job).run(own(), lambda number: reports.put(("done", number)))
    except MarError as error:
        reports.put(("error", str(error)))
    except Exception as error:  # torch raises many kinds; the parent reports them
        traceback.print_exc()
        reports.put(("error", f"A worker on {job.device} failed with {type(error).__name__}: {error}"))
