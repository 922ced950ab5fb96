"""Disk space, reserved before a mapped file is written to.

A mapped file that is only given a size is sparse: if the disk is full, writing to its pages ends the process
with a bus error. Space that is reserved beforehand cannot run out.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

#: Errors of a disk, a quota or a limit that leaves no room.
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFullError(MarError):
    """There is no room for a file; the message says how much it needs."""


def reserve(path: Path, size: int) -> None:
    """Reserve space for an existing file, up to a size; its content stays.

    Raises:
        DiskFullError: There is not enough room.
    """
    if not size or not hasattr(os, "posix_fallocate"):  # macOS and Windows have no such call
        return
    handle = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in _DISK_FULL_ERRNOS:
            return  # a file system that cannot reserve space; continue without it
        free = shutil.disk_usage(path.parent).free
        raise DiskFullError(
            f"There is no room for {path}: it needs {size:,} bytes, {free:,} are free ({error.strerror}). "
            "Free disk space, or choose a folder on another disk, and run the command again."
        ) from error
    finally:
        os.close(handle)


def open_reserved(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create an `.npy` file of zeros, mapped for writing, with reserved disk space.

    Args:
        path: The file; it is replaced.
        dtype: Type of the elements.
        shape: Shape of the array.

    Raises:
        DiskFullError: There is not enough room; no file is left.
    """
    path.unlink(missing_ok=True)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array: np.memmap[Any, Any] = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.dtype(dtype), shape=shape
    )
    try:
        reserve(path, int(array.offset) + size)
    except DiskFullError:
        del array
        path.unlink(missing_ok=True)
        raise
    return array
