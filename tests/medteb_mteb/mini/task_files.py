"""Reading the files of a task folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table."""
    header, *lines = path.read_text("utf-8").splitlines()
    return header.split("\t"), [line.split("\t") for line in lines]
