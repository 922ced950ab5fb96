"""Kernels compiled with AddressSanitizer and UndefinedBehaviorSanitizer, and memory of exact size."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from mar_st.kernels import exact
from mar_st.kernels.processor import processor
from mar_st.online.runtimes import native as runtime

#: After those of the project; the last that is given counts.
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@cache
def _library() -> str:
    """Path of the sanitizer's library, which Python has to load first; empty where there is none."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return ""
    path = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return str(Path(path).resolve()) if Path(path).is_absolute() else ""


def missing() -> str | None:
    """Return what this machine lacks for the kernels."""
    lacks = sorted((runtime.REQUIRED_FLAGS | exact.REQUIRED_FLAGS) - processor().flags)
    if lacks:
        return f"this processor has no {', '.join(lacks)}"
    return None if _library() else "there is no g++ with AddressSanitizer"


def environment() -> dict[str, str]:
    """Return what a process needs to load such kernels."""
    return {
        "LD_PRELOAD": _library(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def use() -> bool:
    """Compile kernels with sanitizers from now on, in a process that has the library of `environment`."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        return False
    runtime._COMPILER_FLAGS = (*runtime._COMPILER_FLAGS, *FLAGS)
    exact._COMPILER_FLAGS = (*exact._COMPILER_FLAGS, *FLAGS)
    return True


_LIBC = ctypes.CDLL(None)
_LIBC.free.argtypes = [ctypes.c_void_p]


class Memory:
    """Bytes that begin at a cache line, with nothing behind them; freed with this object."""

    def __init__(self, size: int) -> None:
        self._place = ctypes.c_void_p()
        if _LIBC.posix_memalign(ctypes.byref(self._place), ctypes.c_size_t(64), ctypes.c_size_t(size)):
            raise MemoryError(size)
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self._place.value or 0))

    def __del__(self) -> None:
        _LIBC.free(self._place)
