"""Any folder in the Hub layout as a task: checked, read from its own files, evaluated by mteb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.folders.layout import Layout, inspect_folder
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.folders.reader import TaskFolder, read_folder
from medteb_mteb.folders.retrieval import RetrievalData

if TYPE_CHECKING:
    from medteb_mteb.folders.tasks import load_into, task_from_folder

__all__ = [
    "FolderError",
    "Layout",
    "RetrievalData",
    "TaskFolder",
    "inspect_folder",
    "load_into",
    "read_folder",
    "task_from_folder",
]


def __getattr__(name: str) -> Any:
    # These two need mteb, which takes seconds to import; reading a folder does not.
    if name in {"load_into", "task_from_folder"}:
        from medteb_mteb.folders import tasks  # lazy: mteb

        return getattr(tasks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
