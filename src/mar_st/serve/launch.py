"""Running the server: one process or several, with a graceful stop."""

from __future__ import annotations

import functools
import gc
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.kernels.processor import processors
from mar_st.serve.connections.seams import check_uvicorn
from mar_st.serve.engine.aside import SWITCH_SECONDS
from mar_st.serve.settings import ServeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fastapi import FastAPI

    from mar_st.serve.engine.fleet import Fleet
    from mar_st.serve.settings import ServeSettings

_LOG = logging.getLogger(__name__)

#: File descriptors that a process needs in addition to those of its connections.
SPARE_FILES = 256

#: Packages of the extra `serve`.
REQUIRED_PACKAGES = ("fastapi", "uvicorn", "httptools", "uvloop", "orjson", "prometheus_client")

#: Maximum bytes of responses that the system buffers for a client that does not read. The default may be
#: megabytes, and the server would compute these responses for nothing.
MAX_UNSENT_BYTES = 128 * 1024

#: Connections that may wait to be accepted, if the system allows as many (`net.core.somaxconn`). The system
#: drops the packets of further clients, which send them again after 1, 2, 4, ... seconds.
BACKLOG = 65_535


def run(
    index: str, encoder: str | None, settings: ServeSettings, *, say: Callable[[str], None] = print
) -> None:
    """Serve until SIGINT or SIGTERM; SIGHUP reopens the index.

    Requests that were accepted are answered before it returns.

    Args:
        index: Folder or URI of the index.
        encoder: Model that encodes queries; `None` to search by vectors alone.
        settings: Address, limits and keys.
        say: Receives the address of the server.

    Raises:
        ServeError: The address is taken, or a worker cannot start.
        PackageError: A package is missing.
        MarError: The index or the encoder cannot be opened.
    """
    folders = [index, *([encoder] if encoder is not None else [])]
    launch(functools.partial(worker, index, encoder, settings), settings, folders=folders, say=say)


def launch(
    make: Callable[[Path], FastAPI],
    settings: ServeSettings,
    *,
    folders: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run an application of `create_app` as `run` does.

    Args:
        make: Makes the application from the folder that workers share; it is pickled for the workers.
        settings: Address and processes; the application has its own copy for the rest.
        folders: Served folders, to name a truncated file that ended a process.
        say: Receives the address of the server.

    Raises:
        ServeError: See `run`.
        PackageError: See `run`.
        UvicornError: The installed uvicorn lacks a piece that the server relies on.
    """
    check_packages()
    check_uvicorn()
    from mar_st.serve.connections.config import ServeConfig  # lazy: uvicorn
    from mar_st.serve.connections.guard import ConnectionLimits  # lazy: orjson
    from mar_st.serve.postmortem import watched  # lazy: numpy

    max_connections = _allow_files(settings.max_connections)
    alone = settings.workers == 1
    with (
        watched(folders) if alone else nullcontext(),
        _listen(settings.host, settings.port) as listening,
        _shared_folder(not alone) as folder,
    ):
        config = ServeConfig(
            ConnectionLimits(
                max_connections=max_connections,
                head_seconds=settings.header_timeout,
                send_seconds=settings.send_timeout,
            ),
            app=functools.partial(make, folder),
            factory=True,
            workers=settings.workers,
            backlog=BACKLOG,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_keep_alive=settings.keep_alive,
            timeout_graceful_shutdown=settings.shutdown_timeout,
            timeout_worker_healthcheck=60,
        )
        config.guard.listening = listening
        address = _address(listening)
        if alone:
            _run_alone(config, listening, folder, lambda: say(f"listening on {address}"))
        else:
            _run_workers(config, listening, folder, folders, lambda: say(f"listening on {address}"))


def worker(index: str, encoder: str | None, settings: ServeSettings, folder: Path) -> FastAPI:
    """Return the application of one worker; if that fails, end the process with one line.

    Args:
        index: See `run`.
        encoder: See `run`.
        settings: See `run`.
        folder: Folder that workers share.
    """
    from mar_st.serve.app import create_app  # lazy: fastapi
    from mar_st.serve.engine.documents import load_document_encoder  # lazy: numpy

    documents = None
    if settings.threads is None:
        # If each worker used all processors, they would slow each other down.
        settings = replace(settings, threads=max(1, processors() // settings.workers))
    try:
        fleet = join_fleet(folder, settings)
        if settings.document_encoder is not None:
            documents = load_document_encoder(settings.document_encoder)
        app = create_app(index, settings, encoder=encoder, documents=documents, fleet=fleet)
        # Present objects stay. Garbage collection that scanned them would take tens of milliseconds, and
        # every request would wait.
        gc.collect()
        gc.freeze()
        return app
    except (MarError, OSError) as error:  # such as a full disk, or files that may not be read
        if settings.workers == 1:
            raise
        from uvicorn.config import STARTUP_FAILURE  # lazy: uvicorn

        _LOG.error("%s", error)
        sys.exit(STARTUP_FAILURE)


def join_fleet(folder: Path, settings: ServeSettings) -> Fleet:
    """Make this process a worker.

    Args:
        folder: Folder that workers share.
        settings: Settings with the number of workers.
    """
    from mar_st.serve.engine.fleet import Fleet  # lazy: orjson

    _allow_files(settings.max_connections)
    sys.setswitchinterval(SWITCH_SECONDS)
    if settings.workers == 1:
        return Fleet(folder)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is for the parent, which tells the workers
    return Fleet(folder, parent=os.getppid())


def _run_alone(config: Any, listening: socket.socket, folder: Path, ready: Callable[[], None]) -> None:
    from mar_st.serve.supervise import LoneServer  # lazy: uvicorn

    config.load()
    # uvicorn raises the signal that stopped it a second time; this handler lets the process end quietly.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: None)
    LoneServer(config, folder, ready).run(sockets=[listening])


def _run_workers(
    config: Any, listening: socket.socket, folder: Path, served: Sequence[str], ready: Callable[[], None]
) -> None:
    from mar_st.serve.supervise import Workers  # lazy: uvicorn

    workers = Workers(config, listening, folder, served, ready)
    workers.run()
    if workers.failed:
        raise ServeError("A worker could not start; the lines above say why.")


def check_packages() -> None:
    """Check that the optional packages of the server are installed.

    Raises:
        PackageError: A package is missing; the message holds the pip command.
    """
    from mar_st.files.packages import need_packages  # lazy: numpy

    need_packages(*REQUIRED_PACKAGES, extra="serve", purpose="mar serve")


def _allow_files(connections: int) -> int:
    """Raise the limit of open files as far as allowed, and return the number of connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(connections, soft - SPARE_FILES))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # accepted connections inherit it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as error:  # names that DNS does not allow are a UnicodeError
        reason = getattr(error, "strerror", None) or error
        raise ServeError(
            f"Cannot listen on {host}:{port} ({reason}). Choose another --port (0 takes a free one), or "
            "another --host."
        ) from error
    listening.set_inheritable(True)
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def _shared_folder(several: bool) -> Iterator[Path]:
    """Return a folder for the messages of workers and, with several, their metrics."""
    folder = Path(tempfile.mkdtemp(prefix="mar-serve-"))
    try:
        if several:
            # prometheus_client reads it when it is first imported, which happens in the workers.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        yield folder
    finally:
        if several:
            os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
        shutil.rmtree(folder, ignore_errors=True)
