"""A cache folder that only its user can write to, for files that are computed once per user and trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["is_own", "user_cache"]


def user_cache() -> Path | None:
    """Return `$XDG_CACHE_HOME/medteb` (`~/.cache/medteb`), created if it is missing.

    Return `None` if it cannot be written, belongs to another user, or others could write to it or replace it.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = ((Path(base) if base else Path.home() / ".cache") / "medteb").absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        parents = [parent.stat() for parent in folder.parents]
    except (OSError, RuntimeError):
        return None
    if any(map(_replaceable, parents)) or not folder.is_dir() or not is_own(folder):
        return None
    return folder if os.access(folder, os.W_OK) else None


def is_own(path: Path) -> bool:
    """Return True if a path exists, is not a symbolic link, and only this user owns and may write to it.

    The last two are not checked on Windows, where other users have no access to a user's folders.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    if os.name == "nt":
        return not stat.S_ISLNK(status.st_mode)
    plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return plain and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _replaceable(folder: os.stat_result) -> bool:
    """Return True if others may replace files in a folder; the sticky bit (as on /tmp) prevents that."""
    if os.name == "nt":
        return False
    if folder.st_uid not in (0, os.getuid()):
        return True
    return bool(folder.st_mode & stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX
