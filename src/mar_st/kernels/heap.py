"""Settings of the C library's heap: when it returns memory to the system, and when it keeps it."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any

#: Numbers of glibc's settings (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: Larger blocks are mapped from the system one by one; mallopt(3) allows no larger number.
_MMAP_BYTES = 32 * 2**20

#: Bytes free at the end of a heap (there is one per thread) before it shrinks.
_TRIM_BYTES = 256 * 2**20


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return glibc; `None` with another C library or system."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def trim() -> bool:
    """Give free pages of the heap back to the system; return whether this is possible here."""
    library = _library()
    if library is not None:
        library.malloc_trim(0)
    return library is not None


def keep() -> bool:
    """Keep freed memory for later blocks, up to 256 MB per thread; return whether this is possible here.

    By default glibc gives blocks of megabytes back as soon as they are free, and the next layer of a network
    gets fresh pages, which the system clears one by one. The setting is that of the whole process and stays;
    `trim` returns the kept memory to the system.
    """
    library = _library()
    if library is None:
        return False
    settings = ((_MMAP_THRESHOLD, _MMAP_BYTES), (_TRIM_THRESHOLD, _TRIM_BYTES))
    return all(library.mallopt(number, value) for number, value in settings)
