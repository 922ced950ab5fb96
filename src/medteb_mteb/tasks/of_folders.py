"""Tasks from data folders: one from a folder in the Hub layout, several from a Nano set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.folders import FolderError, task_from_folder
from medteb_mteb.nano.layout import is_nano
from medteb_mteb.tasks.nano import nano_tasks_from_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from medteb_mteb.folders.tasks import FolderTask
    from medteb_mteb.tasks.nano import NanoTask

__all__ = ["tasks_from_folders"]


def tasks_from_folders(paths: Iterable[Path | str]) -> list[FolderTask | NanoTask]:
    """Return one task per folder, in order; for a Nano set, all tasks of all its splits.

    Raises:
        FolderError: If a folder is unusable, or two folders have the same task name.
    """
    tasks: dict[str, FolderTask | NanoTask] = {}
    for path in paths:
        folder = Path(path).expanduser()
        folder_tasks: Sequence[FolderTask | NanoTask]
        folder_tasks = nano_tasks_from_folder(folder) if is_nano(folder) else [task_from_folder(folder)]
        for task in folder_tasks:
            if (name := task.metadata.name) in tasks:
                raise FolderError(
                    folder.absolute(),
                    [
                        f"has the same task name {name!r} as {tasks[name].folder}; rename one folder, or "
                        f"give it a name in its README header: `medteb: {{name: ...}}`"
                    ],
                )
            tasks[name] = task
    return list(tasks.values())
