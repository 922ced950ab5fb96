"""Base of tasks whose data are built from raw files with `medteb build relatives`."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from mteb.timing import TimingStack

from medteb_mteb.abstasks.local_copy import DataUnavailableError, LocalCopy, copy_of
from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.editions.manifest import MANIFEST_NAME, EditionError, load_edition
from medteb_mteb.folders import FolderError, inspect_folder, load_into, read_folder

__all__ = ["NOT_BUILT", "BuiltTask", "how_to_build"]

#: Revision of a task whose data were not built.
NOT_BUILT = "not-built"


class BuiltTask(LocalCopy):
    """Reads `$MEDTEB_DATA/<task name>/`; put it before mteb's task class in the bases.

    Attributes:
        sources: Raw files that the data are built from, for the message about missing data.
        source_needs: Requirement for getting these files, see `medteb_mteb.tasks.needs`.
        built_size: Numbers of queries and documents of the data built from the documented files.
    """

    sources: ClassVar[str]
    source_needs: ClassVar[str] = "network"
    built_size: ClassVar[tuple[int, int] | None] = None

    def __init__(self, **kwargs: Any) -> None:
        self.use_copy(copy_of(self.copy_name), lambda folder: inspect_folder(folder).revision())
        super().__init__(**kwargs)

    @property
    def needs(self) -> str:
        """Return the requirements for getting the raw files; empty if the data were built."""
        return "nothing" if self.local_copy is not None else self.source_needs

    @property
    def size(self) -> tuple[int, int] | None:
        """Return queries and documents of the built data, else of data built from the named files."""
        if self.local_copy is not None and (self.local_copy / MANIFEST_NAME).is_file():
            try:
                counts = load_edition(self.local_copy).counts
            except EditionError:  # loading the data reports the problem
                return None
            if {"queries", "corpus"} <= set(counts):
                return counts["queries"], counts["corpus"]
        return self.built_size

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Check the built data and read them.

        Raises:
            DataUnavailableError: The data were not built.
            FolderError: The data have problems, or changed after the task was created.
        """
        if self.data_loaded:
            return
        copy = self.copy_to_read()
        if copy is None:
            self.load_without_copy(num_proc, timer=timer, **kwargs)
            return
        with (timer or TimingStack())("Data loading", log_message=f"Loading {copy}..."):
            folder = read_folder(copy)
            if folder.revision != self.metadata.revision:
                raise FolderError(copy, ["the data changed after the task was created; create it again"])
            load_into(self, folder)

    def load_without_copy(self, num_proc: int | None, **kwargs: Any) -> None:
        """Get the data from elsewhere; does nothing for sets that are not published in this form.

        Raises:
            DataUnavailableError: Always, with instructions to build the data.
        """
        del num_proc, kwargs
        raise DataUnavailableError(how_to_build(type(self).metadata.name, self.sources))


def how_to_build(task: str, sources: str) -> str:
    """Return the message of a task without data: how to build them, and from what.

    Args:
        task: Name of the task.
        sources: The raw files.
    """
    root = os.environ.get(DATA_VARIABLE)
    then = "" if root else f", then set {DATA_VARIABLE}=DATA"
    return (
        f"the data of {task} were not built. Get {sources}, and run "
        f"`medteb build relatives {task} FOLDER {root or 'DATA'}`{then}."
    )
