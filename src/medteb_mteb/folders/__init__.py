"""Any folder in the Hub layout as a task: checked, read from its own files, evaluated by mteb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.folders.content import (
    RetrievalData,
    TaskFolder,
    collect_retrieval,
    detect_type,
    read_folder,
    table_rows,
)
from medteb_mteb.folders.layout import (
    DISPUTED,
    PINNED_SETTINGS,
    FolderError,
    Layout,
    Problems,
    card_header,
    inspect_folder,
    is_nano,
)

if TYPE_CHECKING:
    from medteb_mteb.folders.tasks import UNKNOWN_LANGUAGE, eval_languages, load_into, task_from_folder

__all__ = [
    "DISPUTED",
    "PINNED_SETTINGS",
    "UNKNOWN_LANGUAGE",
    "FolderError",
    "Layout",
    "Problems",
    "RetrievalData",
    "TaskFolder",
    "card_header",
    "collect_retrieval",
    "detect_type",
    "eval_languages",
    "inspect_folder",
    "is_nano",
    "load_into",
    "read_folder",
    "table_rows",
    "task_from_folder",
]


def __getattr__(name: str) -> Any:
    # These need mteb, which takes seconds to import; reading a folder does not.
    if name in {"UNKNOWN_LANGUAGE", "eval_languages", "load_into", "task_from_folder"}:
        from medteb_mteb.folders import tasks  # lazy: mteb

        return getattr(tasks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
