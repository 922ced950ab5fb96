"""Writing files so that a kill or a power cut never leaves half a file under its final name.

The content reaches the disk before the name does: first the content is synced, then the file is renamed, then
the folder that holds the name is synced. A link at a temporary name is replaced, never followed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_O_DIRECTORY = getattr(os, "O_DIRECTORY", None)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk; does nothing if the system has no such call."""
    if _O_DIRECTORY is None:
        return
    handle = os.open(path, os.O_RDONLY | _O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems refuse it
            os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, with their names on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def move_file(part: Path, path: Path) -> None:
    """Move a temporary file into place; its content is on the disk before its name is."""
    sync_file(part)
    part.replace(path)
    sync_folder(path.parent)


def move_folder(part: Path, path: Path) -> None:
    """Move a temporary folder into place, where nothing may exist; see `move_file`."""
    _sync_below(part)
    part.rename(path)
    sync_folder(path.parent)


def replace_folder(part: Path, path: Path) -> None:
    """Move a temporary folder into place; an existing one is set aside first, and deleted last.

    The old folder is set aside under a new hidden name, so nothing else is deleted. It comes back if the new
    one cannot be moved.
    """
    if not path.exists():
        move_folder(part, path)
        return
    _sync_below(part)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-", suffix=".old"))
    old = path.rename(aside / path.name)
    try:
        part.rename(path)
    except BaseException:
        old.rename(path)
        aside.rmdir()
        raise
    sync_folder(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def finished_folder(path: Path) -> Iterator[Path]:
    """Provide a new empty folder to write to, and move it into place if the block succeeds.

    It is inside a hidden folder beside `path` (`.NAME-*.part`), which is deleted in any case. An existing
    folder at `path` is replaced, see `replace_folder`; the caller makes sure that it may be.
    """
    make_folder(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-", suffix=".part") as own:
        part = Path(own, path.name)
        part.mkdir()
        yield part
        replace_folder(part, path)


def _sync_below(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(place, name))
        sync_folder(Path(place))


@contextmanager
def finished(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Provide a temporary name to write a file to, and move the file into place if the block succeeds.

    The name is `path` with `.part`. An existing file of that name is deleted first, and the new one is
    deleted if the block fails.

    Args:
        path: The file.
        shared: Several processes or threads may write the file at once; each gets its own name.
    """
    own = f".{os.getpid()}-{threading.get_ident()}" if shared else ""
    part = path.with_name(f"{path.name}{own}.part")
    part.unlink(missing_ok=True)
    try:
        yield part
        move_file(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, shared: bool = False, private: bool = False) -> None:
    """Write a text in UTF-8, completely or not at all; see `finished`.

    Args:
        path: The file.
        text: Text to write.
        shared: Several processes or threads may write the file at once.
        private: Only the user may read and write the file, from its first byte on.
    """

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 if private else 0o666)

    with (
        finished(path, shared=shared) as part,
        open(part, "x", encoding="utf-8", opener=create) as stream,
    ):
        stream.write(text)


def write_json(
    path: Path, content: Any, *, indent: int | None = 2, sort_keys: bool = False, shared: bool = False
) -> None:
    """Write JSON, completely or not at all.

    Args:
        path: The file.
        content: Content to write.
        indent: Spaces per level; `None` for one line.
        sort_keys: Write keys in alphabetical order.
        shared: Several processes or threads may write the file at once.
    """
    text = json.dumps(content, ensure_ascii=False, indent=indent, sort_keys=sort_keys)
    write_text(path, f"{text}\n", shared=shared)
