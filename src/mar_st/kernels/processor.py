"""Maker and extensions of this machine's processor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Processor:
    """The first processor as Linux describes it (`/proc/cpuinfo`); empty on other systems.

    Attributes:
        maker: Such as `GenuineIntel`.
        flags: Names of its extensions.
    """

    maker: str = ""
    flags: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def processor() -> Processor:
    """The processor of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return Processor()
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return Processor(found.get("vendor_id", ""), frozenset(found.get("flags", "").split()))
