"""The processes of one launch: the first writes files, and the others wait until it is done."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock, Timeout

from mar_st.files import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mar_st.errors import MarError

#: Seconds for which the first process waits for a lock before it tells the others that it still waits.
POLL_SECONDS = 5.0


class Processes:
    """The processes of a launch; without a launcher, only this one."""

    def __init__(self) -> None:
        self.state: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import PartialState  # type: ignore[import-untyped]  # lazy: accelerate

            self.state = PartialState(cpu=not torch.cuda.is_available())

    @property
    def main(self) -> bool:
        """Return True in the first process."""
        return self.state is None or int(os.environ.get("RANK", "0")) == 0

    def wait(self) -> None:
        """Wait until all processes reach this point."""
        if self.state is not None:
            torch.distributed.barrier()

    def broadcast(self, *, value: bool) -> bool:
        """Return the value of the first process in all of them."""
        if self.state is None:
            return value
        message = torch.tensor(value, dtype=torch.int32, device=self.state.device)
        torch.distributed.broadcast(message, 0)
        return bool(message.item())

    @contextmanager
    def alone(self, folder: Path, error: type[MarError]) -> Iterator[None]:
        """Keep other launches out of a folder, see `mar_st.files.locked`; the first process locks it.

        Raises:
            MarError: Another launch is writing the folder; raised as `error` in all processes.
        """
        with ExitStack() as held:
            refused: MarError | None = None
            if self.main:
                try:
                    held.enter_context(locked(folder, error))
                except error as busy:
                    refused = busy
            if self.broadcast(value=refused is not None):
                raise refused or error(f"The first process could not lock {folder}; see its error.")
            yield

    @contextmanager
    def locked(self, path: Path, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold a lock that another run may hold for hours; a killed run releases it.

        The first process takes it, and tells the others every `POLL_SECONDS` seconds whether it has it: if
        they waited in a barrier meanwhile, the process group would time out.

        Args:
            path: File of the lock.
            waiting: Called once if another run holds the lock.
        """
        lock, seconds = FileLock(path), 0.0
        while not self.broadcast(value=self.main and _acquired(lock, seconds)):
            if not seconds:
                waiting()
            seconds = POLL_SECONDS
        try:
            yield
        finally:
            lock.release()


def _acquired(lock: FileLock, seconds: float) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True
