"""The tasks and benchmarks, made from tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.tasks.english import ENGLISH_TASKS
from medteb_mteb.tasks.nano import NANO_TASKS, tasks_from_folders
from medteb_mteb.tasks.public import BUILT_TASKS, CMIRB_TASKS, EDITION_TASKS, REPLACED

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

__all__ = ["REPLACED", "TASKS", "tasks_from_folders"]

TASKS: tuple[type[AbsTask], ...] = (*EDITION_TASKS, *NANO_TASKS, *CMIRB_TASKS, *BUILT_TASKS, *ENGLISH_TASKS)
