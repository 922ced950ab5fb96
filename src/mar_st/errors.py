"""The errors that users can fix."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class MarError(ValueError):
    """An input of the caller is invalid.

    The message says what was expected, what was given, and what to do next.
    """


class NotFiniteVectorError(MarError):
    """A stored vector holds NaN, infinite values or values beyond float32.

    Args:
        path: File of the vector.
        place: Row of the vector in this file.
        row: Row of the vector among those that its reader gives out.
    """

    def __init__(self, path: Path, place: int, row: int) -> None:
        self.row = row
        super().__init__(
            f"Vector {place} of {path} holds NaN, infinite values or values beyond float32. Compute these "
            "vectors again."
        )


#: Errors of a disk that is full, read-only or broken, or of a file that this user may not open.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM)
#: Errors of a path that cannot be what it is used as.
_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def os_error_message(error: OSError) -> str | None:
    """Return the error with advice for the user of a command, None if there is none.

    Args:
        error: An error that a command did not expect.
    """
    if error.errno in _DISK:
        return f"{error}. Free disk space, or give a folder that may be written, and run the command again."
    if error.errno in _PATH:
        return f"{error}. Give the path of an existing file or folder, or another path to write to."
    return None
