"""The processor: vendor, instruction sets, the cores that this process may use, and free memory."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: Limits of this process's container (control groups, version 2).
_CGROUP = Path("/sys/fs/cgroup")


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
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, math.ceil(_cpu_limit() or count)))


def available_memory() -> int | None:
    """Return the bytes that new processes may take without swapping; `None` if the system does not say.

    A container's limit counts, too; pages of files that it could give back are not used memory.
    """
    known = [amount for amount in (_free_memory(), _memory_left()) if amount is not None]
    return min(known, default=None)


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _memory_left() -> int | None:
    """Return the bytes that this process's control group may still use; `None` if it has no limit."""
    try:
        limit, used = (
            int((_CGROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current")
        )
        rows = dict(
            line.split() for line in (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        )
    except (OSError, ValueError):  # not there, or "max"
        return None
    return max(0, limit - used + int(rows.get("inactive_file", 0)))


def _cpu_limit() -> float | None:
    """Return the processors that this process's control group may use; `None` if it has no limit."""
    try:
        quota, period = map(int, (_CGROUP / "cpu.max").read_text(encoding="ascii").split())
    except (OSError, ValueError):  # not there, or "max"
        return None
    return quota / period
