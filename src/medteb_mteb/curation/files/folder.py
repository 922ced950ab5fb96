"""Going away: helpers of steps that are not yet on `medteb_mteb.curation.step`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st import files
from mar_st.errors import MarError
from mar_st.files import write_json, write_text
from medteb_mteb.curation.step import lineage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["alone", "claim", "lineage", "read_json", "write_json", "write_text"]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make a folder; `perform` holds its lock."""
    folder.mkdir(parents=True, exist_ok=True)
    yield


def claim(folder: Path, identity: Mapping[str, Any]) -> None:
    """Do nothing."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that holds an object."""
    content = files.read_json(path)
    if not isinstance(content, dict):
        raise MarError(f"{path} does not hold a JSON object.")
    return content
