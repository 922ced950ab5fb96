"""Diagnosis of servers killed by truncated files. The kernel ends such a process with a bus error (SIGBUS).

Another process then checks the mapped files: the supervisor of several workers, or the watcher of a single
server.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import check_file, read_json
from mar_st.index.manifest import MANIFEST, SEGMENTS, files_of, read_manifest
from mar_st.online.listing import LISTING_FILE, format_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_LOG = logging.getLogger(__name__)

#: Format of the lines of the log.
LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"

#: Byte that a server sends to its watcher when it ends normally.
_GOODBYE = b"."


def short_files(folders: Sequence[str]) -> list[str]:
    """Return the files that are missing or differ in size from their listing: path and difference.

    Args:
        folders: Indexes and exported encoders; anything else, such as a name on the Hub, is ignored.
    """
    differences = []
    for name in folders:
        folder = Path(name)
        for place, files in _listed(folder):
            for file, entry in files.items():
                try:
                    state = check_file(place / file, entry, "size")
                except OSError as error:
                    state = f"cannot be read ({error.strerror})"
                if state is not None:
                    differences.append(f"{place / file} {state}")
    return differences


def tell(pid: int, folders: Sequence[str]) -> None:
    """Log one line about a process that ended with a bus error."""
    differences = short_files(folders)
    cause = "; ".join(differences) if differences else "no file of the index or the encoder is short now"
    _LOG.error(
        "process %d ended by a bus error, as when a mapped file is truncated: %s. Copy the folder again, and "
        "replace folders that are served instead of writing into them.",
        pid, cause,
    )  # fmt: skip


@contextmanager
def watched(folders: Sequence[str]) -> Iterator[None]:
    """Have another process log the cause if a truncated file ends this one.

    Call it before threads are started: the process is forked.
    """
    if not hasattr(os, "fork"):
        yield
        return
    pid, (reading, writing) = os.getpid(), os.pipe()
    watcher = os.fork()
    if not watcher:
        os.close(writing)
        _watch(pid, reading, folders)
    os.close(reading)
    try:
        yield
    finally:  # a process that ends in Python reports its own cause
        with suppress(OSError):
            os.write(writing, _GOODBYE)
        os.close(writing)
        with suppress(OSError):
            os.waitpid(watcher, 0)


def _watch(pid: int, reading: int, folders: Sequence[str]) -> None:
    """Wait for the end of a process and leave; never returns."""
    try:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the server handles them
            signal.signal(name, signal.SIG_IGN)
        logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT)
        if os.read(reading, 1) != _GOODBYE and short_files(folders):
            tell(pid, folders)
    finally:
        os._exit(0)


def _listed(folder: Path) -> Iterator[tuple[Path, Mapping[str, Mapping[str, Any]]]]:
    """Yield the folders of listed files, and their entries."""
    with suppress(MarError, OSError):
        if (folder / MANIFEST).is_file():
            yield folder / SEGMENTS, files_of(read_manifest(folder))
        elif (folder / LISTING_FILE).is_file() and format_of(folder):
            yield folder, read_json(folder / LISTING_FILE)["files"]
