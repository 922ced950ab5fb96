"""Running the server with uvicorn, and the sample that it shows without an index."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn

from mar_st.errors import MarError
from mar_st.files import printable, sha256
from mar_st.model.names import installed_folder, model_folder
from mar_st.serve.app import create_app
from mar_st.serve.guard import Keys, allowed_hosts

if TYPE_CHECKING:
    import asyncio
    import socket

    from mar_st.serve import ServeSettings


#: The model whose package contains the sample: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`, `vectors/`.
SAMPLE_MODEL = "mar-zh"

#: Seconds after which a computing thread passes the interpreter to the event loop. With Python's default of
#: 5 ms, every answer would wait that long while the index is searched.
SWITCH_SECONDS = 0.0005

#: Open connections; more get status 503.
MAX_CONNECTIONS = 4096


def launch(settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM; SIGHUP reopens the index.

    Requests that were accepted are answered before it returns.

    Raises:
        MarError: The index or an encoder cannot be opened.
    """
    allowed_hosts(settings, Keys(settings.api_keys))  # before anything is opened
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: None)  # uvicorn raises the first two again at its end
    sys.setswitchinterval(SWITCH_SECONDS)
    log_json()
    if settings.index is None:
        settings = settings.model_copy(
            update={"index": sample_index(), "encoder": settings.encoder or SAMPLE_MODEL}
        )
    config = uvicorn.Config(
        lambda: create_app(settings=settings),
        factory=True,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        backlog=4096,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=math.ceil(settings.timeout),
    )
    listening = config.bind_socket()
    config.load()
    _Server(config).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Prints its address when it is ready, and reopens the index on SIGHUP."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started or not sockets:
            return
        generations: Any = self.config.loaded_app.state.generations
        loop: asyncio.AbstractEventLoop = self.servers[0].get_loop()
        # In the event loop, not inside the signal: a reload takes locks.
        loop.add_signal_handler(signal.SIGHUP, lambda: generations.start(generations.reload_logged()))
        host, port = sockets[0].getsockname()[:2]
        announce(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")


def announce(line: str) -> None:
    """Print a line to standard output; if that cannot be written, as on a full disk, go on without it."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _JsonLines(logging.Formatter):
    """A line of JSON per record: `time`, `level`, `logger`, `message`."""

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        return orjson.dumps(content).decode()


def log_json() -> None:
    """Write the log to standard error, one JSON object per line."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("mar_st.serve").setLevel(logging.INFO)


def sample_index() -> str:
    """Return an index of the sample of mar-zh; builds the index on first use.

    The index is beside the unpacked model in this user's cache. The package contains the vectors, so no
    document is encoded.

    Raises:
        MarError: The model is not installed, or the index cannot be built.
    """
    from mar_st.index.build import build_index  # lazy: pyarrow
    from mar_st.index.folder import VERSION  # lazy: pyarrow

    packed, model = installed_folder(SAMPLE_MODEL), model_folder(SAMPLE_MODEL)
    sample = None if packed is None else packed.parent / "sample"
    if sample is None or model is None or not (sample / "corpus.jsonl").is_file():
        raise MarError(
            f"mar serve without an index shows the sample that comes with {SAMPLE_MODEL}, which is not "
            f"installed. In a clone of the repository, run `pip install ./models/{SAMPLE_MODEL}`, or give an "
            "index that `mar index build` made."
        )
    made_of = sha256(sample / "vectors" / "manifest.json")[:12]
    index = model.with_name(f"{model.name}-sample-{made_of}-{VERSION}")
    if not (index / "manifest.json").is_file():
        announce(f"building the index of the sample in {index}")
        build_index(
            sample / "vectors", index, corpus=str(sample / "corpus.jsonl"), kind="exact", progress=False
        )
    return str(index)
