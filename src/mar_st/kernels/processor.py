"""The processor: vendor, instruction sets and the cores that this process may use."""

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


def _cpu_limit() -> float | None:
    """Return the processors that this process's control group may use; `None` if it has no limit."""
    try:
        quota, period = map(int, (_CGROUP / "cpu.max").read_text(encoding="ascii").split())
    except (OSError, ValueError):  # not there, or "max"
        return None
    return quota / period
