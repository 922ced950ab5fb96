"""Writing files and folders so that a kill never leaves half of one under its final name, and locks."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Name of the lock in a folder.
LOCK = ".lock"

#: The file that transformers' trainer writes last.
_STATE = "trainer_state.json"


@contextmanager
def finished(path: Path) -> Iterator[Path]:
    """Provide a temporary name to write a file to, and move the file into place if the block succeeds.

    Each process and thread gets a name of its own. The file is deleted if the block fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}.part")
    part.unlink(missing_ok=True)
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def finished_folder(path: Path) -> Iterator[Path]:
    """Provide a new empty folder to write to, and move it into place if the block succeeds.

    An existing folder at `path` is replaced; the caller makes sure that it may be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-", suffix=".part") as own:
        part = Path(own, path.name)
        part.mkdir()
        yield part
        replace_folder(part, path)


def replace_folder(part: Path, path: Path) -> None:
    """Move a folder into place; an existing one is deleted last, and comes back if the move fails."""
    if not path.exists():
        part.rename(path)
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-", suffix=".old") as aside:
        old = path.rename(Path(aside, path.name))
        try:
            part.rename(path)
        except BaseException:
            old.rename(path)
            raise


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text in UTF-8, completely or not at all; `private`: only this user may read it."""
    with finished(path) as part:
        part.touch(0o600 if private else 0o666)
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any, *, indent: int | None = 2, sort_keys: bool = False) -> None:
    """Write JSON, completely or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent, sort_keys=sort_keys) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and keep other processes out; a killed process releases its lock.

    Raises:
        MarError: Another process is writing the folder.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise MarError(
            f"Another process is writing {folder}. Wait for it to end, or give another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()
        if new and [path.name for path in folder.iterdir()] == [LOCK]:  # nothing was written
            (folder / LOCK).unlink()
            folder.rmdir()


def clear(folder: Path) -> None:
    """Delete everything in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def last_checkpoint(folder: Path, *, delete: bool = True) -> str | None:
    """Return the newest complete checkpoint below `folder`.

    Args:
        folder: Folder of the checkpoints.
        delete: Delete checkpoints that were not written completely; only one process should do so.
    """
    numbered = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if delete:
                shutil.rmtree(path)
        else:
            return str(path)
    return None


def user_cache() -> Path | None:
    """Return `$XDG_CACHE_HOME/medteb` (`~/.cache/medteb`), or `None` if others may write to it.

    Compiled kernels are loaded from there, so a folder that others may write to is not used.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "medteb")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        return None
    private = os.name == "nt" or (
        status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return folder if private and os.access(folder, os.W_OK) else None
