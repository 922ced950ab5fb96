"""Damage to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[min(len(content) // 2 + 40, len(content) - 1)] ^= 1
    path.write_bytes(content)
