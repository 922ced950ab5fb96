"""Reloading one index in several workers, and collecting their reports.

Workers share only a folder with a generation number. A reload increments the number; every worker polls it a
few times a second, reloads, and writes a report beside it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.serve.engine.generations import Generations

_LOG = logging.getLogger(__name__)

#: Seconds between two reads of the generation number.
POLL_SECONDS = 0.2

#: Seconds between two checks of the folder of the index.
WATCH_SECONDS = 1.0

#: Seconds between two attempts to open a folder that could not be opened, such as one that is being copied.
RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerReport:
    """A worker's report on its index.

    Attributes:
        pid: Process id of the worker.
        wanted: The last number for which it has reloaded.
        ok: True if it could open the index.
        documents: Number of documents in the index that it serves.
        message: The error, if any.
    """

    pid: int
    wanted: int
    ok: bool
    documents: int
    message: str = ""


class Fleet:
    """The folder through which workers are asked to reload.

    Args:
        folder: An existing folder that only this server uses.
        parent: The process that supervises this one; a worker ends when its parent has ended.
    """

    def __init__(self, folder: Path, parent: int | None = None) -> None:
        self.folder, self.parent = folder, parent

    @property
    def wanted(self) -> int:
        """Return the number for which workers should reload."""
        try:
            return int((self.folder / "wanted").read_bytes() or b"0")
        except FileNotFoundError:
            return 0

    def raise_wanted(self) -> int:
        """Have all workers reload.

        Returns:
            The new number.
        """
        self._restore()
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = self.wanted + 1
            self._write("wanted", str(number).encode())
        return number

    def report(self, report: WorkerReport) -> None:
        """Write the report of this worker."""
        self._write(f"worker-{report.pid}.json", orjson.dumps(asdict(report)))

    def forget(self, pid: int) -> None:
        """Drop a worker that has ended."""
        (self.folder / f"worker-{pid}.json").unlink(missing_ok=True)

    def reports(self) -> list[WorkerReport]:
        """Return the latest report of every running worker."""
        paths = sorted(self.folder.glob("worker-*.json"))
        latest = [WorkerReport(**orjson.loads(path.read_bytes())) for path in paths]
        return [report for report in latest if _is_running(report.pid)]

    async def settled(self, number: int, seconds: float) -> list[WorkerReport]:
        """Return the reports of all workers once they have reloaded for a number.

        Raises:
            MarError: Some workers have not reloaded within the time limit.
        """
        end = time.monotonic() + seconds
        while True:
            reports = self.reports()
            behind = [report.pid for report in reports if report.wanted < number]
            if reports and not behind:
                return reports
            if time.monotonic() > end:
                raise MarError(f"Workers {behind} have not opened the index after {seconds:g} s.")
            await asyncio.sleep(POLL_SECONDS / 2)

    def _write(self, name: str, content: bytes) -> None:
        # Not synced: the folder ends with the server, and a sync would hold up the worker's event loop.
        self._restore()
        part = self.folder / f"{name}.{os.getpid()}.part"
        part.write_bytes(content)
        part.replace(self.folder / name)

    def _restore(self) -> None:
        """Create the folder again if it was deleted, as some systems do with old temporary files.

        Raises:
            MarError: Another user has created a folder of this name.
        """
        with suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        if self.folder.lstat().st_uid != os.geteuid():
            raise MarError(f"{self.folder} was deleted, and now belongs to another user. Restart the server.")


async def follow(fleet: Fleet, generations: Generations, *, seen: int, watch: bool) -> None:
    """Reload whenever the fleet's number changes, and with `watch` whenever the folder changes; never ends.

    Args:
        fleet: The folder shared by the workers.
        generations: Generations to reload.
        seen: The fleet's number before the index was opened.
        watch: Watch the folder of the index, too.
    """
    follower = _Follower(fleet, generations, seen, watch=watch)
    logged = ""
    fleet.report(WorkerReport(os.getpid(), seen, True, generations.current.documents))
    while True:
        await asyncio.sleep(POLL_SECONDS)
        if fleet.parent is not None and os.getppid() != fleet.parent:
            _LOG.error("the supervising process is gone, so this worker stops")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        try:
            await follower.look()
            logged = ""
        except Exception as error:  # the next look may succeed
            message = f"{type(error).__name__}: {error}"
            if message != logged:
                _LOG.error("it is not known whether the index should be reopened (%s)", message)
            logged = message


class _Follower:
    """Reloads when it should; see `follow`."""

    def __init__(self, fleet: Fleet, generations: Generations, seen: int, *, watch: bool) -> None:
        self.fleet, self.generations, self.seen, self.watch = fleet, generations, seen, watch
        self._failure: tuple[object, str] = (None, "")  # stamp of the folder, message
        self._failed = -math.inf
        self._looked = time.monotonic()

    async def look(self) -> None:
        """Reload if the fleet's number or the folder has changed, and report."""
        generations, wanted = self.generations, self.fleet.wanted
        if wanted == self.seen:  # the number is lower if the folder was deleted meanwhile
            if not self.watch or time.monotonic() - self._looked < WATCH_SECONDS:
                return
            self._looked = time.monotonic()
            waits = generations.stamp == self._failure[0] and self._looked - self._failed < RETRY_SECONDS
            if waits or not generations.changed():
                return
        opening, failure = generations.stamp, None
        try:
            await generations.reload()
        except MarError as error:
            failure = opening, str(error)
            if wanted != self.seen or failure != self._failure:  # a retry that fails again is not logged
                _LOG.error("the index was not reopened, the old one still answers: %s", error)
        self.seen, self._failure, self._failed = wanted, failure or (None, ""), time.monotonic()
        documents, message = generations.current.documents, self._failure[1]
        self.fleet.report(WorkerReport(os.getpid(), wanted, failure is None, documents, message))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
