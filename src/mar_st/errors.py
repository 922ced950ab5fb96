"""The errors that users can fix."""

from __future__ import annotations

import errno
import re


class MarError(ValueError):
    """An input of the caller is invalid.

    The message says what was expected, what was given, and what to do next.
    """


#: Errors of a disk that is full, read-only or broken, or of a file that this user may not open.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM)
#: Errors of a path that cannot be what it is used as.
_PATH = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
#: How safetensors and tokenizers give the number of an error.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
#: How torch and numpy say that a disk took a part of a file alone.
_CUT_FILE = re.compile(
    r"inline_container.* unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing"
    r"|basic_ios::clear: iostream error"
    r"|^\d+ requested and \d+ written$"
)


def os_error_message(error: Exception) -> str | None:
    """Return an error of the disk or a path with advice for the user of a command, None for other errors.

    Args:
        error: An error that a command did not expect. Libraries in other languages raise exceptions of their
            own for errors of the disk.
    """
    number = getattr(error, "errno", None)
    if number is None and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    if number in _DISK or (number is None and _CUT_FILE.search(str(error))):
        return f"{error}. Free disk space, or give a folder that may be written, and run the command again."
    if number in _PATH:
        return f"{error}. Give the path of an existing file or folder, or another path to write to."
    return None
