"""Giving free memory of the C library's heap back to the system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def trim() -> bool:
    """Give free pages of the heap back to the system; return whether this is possible here (glibc)."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            return True
    return False
