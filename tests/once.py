"""Folders that take long to make, made once for all processes of a run of the tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Returns the folder that `make(folder)` fills in the first process that asks; others wait for it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        done = folder / ".done"
        if not done.exists():
            folder.mkdir(parents=True)
            make(folder)
            done.touch()
    return folder
