"""The machine: its processor, free memory of the heap, and C++ that is compiled there once per user."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import user_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Processor:
    """The first processor as Linux describes it (`/proc/cpuinfo`); empty on other systems.

    Attributes:
        maker: Vendor, such as `GenuineIntel`.
        flags: Names of its extensions.
    """

    maker: str = ""
    flags: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def processor() -> Processor:
    """Return the processor of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return Processor()
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return Processor(fields.get("vendor_id", ""), frozenset(fields.get("flags", "").split()))


def processors() -> int:
    """Return the number of processors that this process may use; a container's CPU limit is rounded up."""
    from joblib import cpu_count  # lazy: start-up

    count: int = cpu_count()
    return count


#: Numbers of glibc's settings (malloc.h), and the bytes that both are set to.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _KEPT_BYTES = -1, -3, 2**30


def keep_freed() -> None:
    """Let this process keep the memory that it frees, where the C library can do so (glibc).

    By default a block of megabytes goes back to the system as soon as it is free, and the next layer of a
    network gets fresh pages, which the system clears one by one: a tenth of a training step of `mar-e5`,
    4 % of `mar encode` (Intel Xeon, two cores). `trim` gives back what is kept.
    """
    _heap(lambda library: [library.mallopt(name, _KEPT_BYTES) for name in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)])


def trim() -> None:
    """Give free pages of the heap back to the system, where the C library can do so (glibc)."""
    _heap(lambda library: library.malloc_trim(0))


def _heap(change: Callable[[ctypes.CDLL], object]) -> None:
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            change(ctypes.CDLL("libc.so.6"))


#: Seconds that a compiler may take.
_COMPILER_SECONDS = 120


class CompileError(MarError):
    """C++ that could not be compiled or loaded here; the message says why."""


def library(source: Path, flags: Sequence[str]) -> ctypes.CDLL:
    """Compile a source file, unless this user has compiled it already, and load it.

    Compiled files are kept in `$XDG_CACHE_HOME/medteb` (`~/.cache/medteb`), under a name made of the source,
    the headers beside it and the flags; a machine that has them needs no compiler. If that folder cannot be
    written, or others could write to it, the source is compiled into a temporary folder each time. A file
    that belongs to another user, is a link or is writable by others is never loaded but compiled again.

    Args:
        source: A `.cpp` file.
        flags: Flags of the compiler, such as the instructions it may use.

    Raises:
        CompileError: The compiler is missing or failed.
    """
    if platform.system() != "Linux":
        raise CompileError(f"C++ is compiled on Linux only; this is {platform.system()}.")
    options = ["-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", *flags]
    cache = user_cache()
    target = None if cache is None else cache / f"{source.stem}-{_digest(source, options)}.so"
    try:
        if target is not None and target.is_file():
            with suppress(OSError):  # cut, or of another system with the same home
                return ctypes.CDLL(str(target))
        with tempfile.TemporaryDirectory(
            dir=cache
        ) as folder:  # Linux keeps a loaded library whose file is gone
            compiled = _compile(options, source, Path(folder) / "library.so")
            if target is not None:
                compiled.chmod(0o700)  # whatever the umask is
                compiled = compiled.replace(target)
            return ctypes.CDLL(str(compiled))
    except OSError as error:
        raise CompileError(f"{source.name} could not be compiled or loaded: {error}") from error


def close_with(owner: object, close: Callable[[int], None], handle: int) -> None:
    """Close what C++ opened when its owner is deleted, but not in a fork, where its threads do not exist."""
    weakref.finalize(owner, _close, close, handle, os.getpid())


def _close(close: Callable[[int], None], handle: int, opened_by: int) -> None:
    if os.getpid() == opened_by:
        close(handle)


def _compile(options: Sequence[str], source: Path, target: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise CompileError("There is no C++ compiler. Install one (Debian, Ubuntu: apt install g++).")
    try:
        subprocess.run(  # noqa: S603 -- our own source
            [compiler, *options, "-o", str(target), str(source)], check=True, capture_output=True, text=True,
            timeout=_COMPILER_SECONDS,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        reason = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr[:200])
        raise CompileError(f"{compiler} could not compile {source.name}: {reason.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{compiler} could not compile {source.name}: {error}") from error
    return target


def _digest(source: Path, options: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join([platform.machine(), *options]).encode())
    for path in (source, *sorted(source.parent.glob("*.hpp"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
