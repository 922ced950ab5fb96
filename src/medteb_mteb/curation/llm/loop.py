"""Event loop of the workers, also in notebooks, with a graceful stop at Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from medteb_mteb.curation.llm.client import quiet_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from medteb_mteb.curation.llm.limits import Stop

__all__ = ["INTERRUPTED", "run_workers"]

#: Reason of a worker that was stopped by Ctrl-C.
INTERRUPTED = "interrupted"

#: Seconds after which a waiting thread looks for Ctrl-C; a signal just before it waits does not wake it.
_WAIT_SECONDS = 0.2


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
    loops: list[asyncio.AbstractEventLoop] = []

    async def everything() -> None:
        loops.append(asyncio.get_running_loop())
        with _interruptible(workers), quiet_libraries():
            ended = await asyncio.gather(*(worker.run() for worker in workers), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    def interrupt() -> None:
        for loop in loops:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(_stop, workers)
        if not loops:  # it has not begun
            _stop(workers)

    _run(everything(), interrupt)


def _stop(workers: Sequence[Runs]) -> None:
    for worker in workers:
        worker.stop.set(INTERRUPTED)


def _run(main: Coroutine[Any, Any, None], interrupt: Callable[[], None]) -> None:
    """Run a coroutine, also where a loop is running already, as in a notebook.

    Args:
        main: The coroutine.
        interrupt: Called at Ctrl-C if the coroutine runs in a thread, which gets no signals.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main)
        return
    ended, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            asyncio.run(main)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    try:
        threading.Thread(target=run, name="llm-workers").start()
        while not ended.wait(_WAIT_SECONDS):
            pass
    except KeyboardInterrupt:
        interrupt()
        ended.wait()
    if errors:
        raise errors[0]


@contextmanager
def _interruptible(workers: Sequence[Runs]) -> Iterator[None]:
    """Let pending answers arrive after the first Ctrl-C; do not wait after the second."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        _stop(workers)

    # Threads and Windows do not support this.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
            if before is not None:  # else it was not set by Python
                signal.signal(signal.SIGINT, before)
