"""The processes of a server: one, or several workers that share a listening socket."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

from uvicorn import Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from mar_st.errors import MarError
from mar_st.serve.engine.fleet import Fleet
from mar_st.serve.postmortem import tell

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

_LOG = logging.getLogger(__name__)


class LoneServer(Server):
    """Server in one process; SIGHUP reopens the index.

    Args:
        config: uvicorn's configuration.
        folder: Folder that workers share; here it only holds the number that requests a reload.
        ready: Called once connections are accepted.
    """

    def __init__(self, config: Any, folder: Path, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._fleet, self._ready = Fleet(folder), ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log the address."""
        signal.signal(signal.SIGHUP, lambda *_: _ask(self._fleet))
        await super().startup(sockets)
        if self.started:
            self._ready()


class Workers(Multiprocess):
    """Several worker processes, restarted when they die.

    On SIGHUP uvicorn starts new workers; here the same workers reopen the index, so that no connection is
    lost.

    Args:
        config: uvicorn's configuration, pickled to the workers.
        listening: The socket on which all workers accept connections.
        folder: Folder that the workers share.
        served: Served folders.
        ready: Called once all workers accept connections.
    """

    def __init__(
        self,
        config: Any,
        listening: socket.socket,
        folder: Path,
        served: Sequence[str],
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config, [listening])
        self._fleet, self._served, self._ready = Fleet(folder), served, ready
        self._told = False
        self.failed = False

    def keep_subprocess_alive(self) -> None:
        """Restart workers that died, and drop their reports."""
        before = {process.pid: process for process in self.processes}
        super().keep_subprocess_alive()
        now = {process.pid for process in self.processes}
        for pid, process in before.items():
            if process.exitcode == STARTUP_FAILURE:
                self.failed = True
            if pid not in now and pid is not None:
                self._forget(pid)
                if process.exitcode == -signal.SIGBUS:
                    tell(pid, self._served)
        if not self._told and all(process.is_ready(timeout=1) for process in self.processes):
            self._told = True
            self._ready()

    def handle_hup(self) -> None:
        """Let all workers reopen the index."""
        _LOG.info("SIGHUP: the index is being reopened")
        _ask(self._fleet)

    def terminate_all(self) -> None:
        """Stop the workers, the socket first, so that new clients are refused at once."""
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def _forget(self, pid: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead  # lazy: prometheus_client

        self._fleet.forget(pid)
        mark_process_dead(pid, str(self._fleet.folder))  # type: ignore[no-untyped-call]


def _ask(fleet: Fleet) -> None:
    """Have all workers reload; a failure is logged, since an error in a signal handler ends the server."""
    try:
        fleet.raise_wanted()
    except (MarError, OSError, ValueError) as error:
        _LOG.error("the index cannot be reopened (%s)", error)
