"""Event loop of the workers, also in notebooks, with a graceful stop at Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from medteb_mteb.curation.llm.client import quiet_libraries

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from medteb_mteb.curation.llm.limits import Stop

__all__ = ["INTERRUPTED", "run_workers"]

#: Reason of a worker that was stopped by Ctrl-C.
INTERRUPTED = "interrupted"


class Runs(Protocol):
    """Interface of a worker that runs until it is done or stopped."""

    @property
    def stop(self) -> Stop:
        """Return the object that signals a stop."""

    async def run(self) -> None:
        """Run."""


def run_workers(workers: Sequence[Runs]) -> None:
    """Run workers side by side, each to its end.

    Raises:
        BaseException: The exception of the first worker that failed, after all workers have ended.
    """

    async def everything() -> None:
        with _interruptible(workers), quiet_libraries():
            ended = await asyncio.gather(*(worker.run() for worker in workers), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    _run(everything())


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, also where a loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, main).result()


@contextmanager
def _interruptible(workers: Sequence[Runs]) -> Iterator[None]:
    """Let pending answers arrive after the first Ctrl-C; do not wait after the second."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        for worker in workers:
            worker.stop.set(INTERRUPTED)

    # Threads and Windows do not support this.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
