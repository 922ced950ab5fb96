"""The lock of a folder: one command at a time writes it."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mar_st.files.writing import make_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Name of the lock in a folder.
LOCK = ".lock"


@contextmanager
def locked(folder: Path, error: type[Exception]) -> Iterator[None]:
    """Keep other processes out of a folder; the lock of a killed process is released.

    Args:
        folder: An existing folder.
        error: Class of the error.

    Raises:
        Exception: Another process is writing the folder; raised as `error`.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise error(
            f"Another process is writing {folder}. Wait for it to end, or give another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def alone(folder: Path, error: type[Exception]) -> Iterator[None]:
    """Make a folder if it is missing, and lock it; a new one that holds nothing at the end is deleted again.

    Raises:
        Exception: Another process is writing the folder; raised as `error`.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    with locked(folder, error):
        try:
            yield
        finally:
            if new and folder.is_dir() and all(path.name == LOCK for path in folder.iterdir()):
                with suppress(OSError):  # a folder that is not empty stays
                    (folder / LOCK).unlink(missing_ok=True)
                    for place in new:
                        place.rmdir()


def clear(folder: Path) -> None:
    """Delete everything in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
