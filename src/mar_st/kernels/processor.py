"""The machine: its processor, the cores that this process may use, and free memory of the heap."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


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


def trim() -> None:
    """Give free pages of the heap back to the system, where the C library can do so (glibc)."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
