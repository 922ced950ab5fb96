"""Base of retrieval tasks that read a folder on this machine if there is one, and the Hub otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.timing import TimingStack

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.abstasks.local_copy import LocalCopy, copy_of
from medteb_mteb.folders import FolderError, inspect_folder, load_into, read_folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CopiedRetrieval"]


class CopiedRetrieval(LocalCopy, JudgedRetrieval):
    """Reads ``$MEDTEB_DATA/<copy name>/`` if it exists, and the Hub otherwise."""

    def __init__(self, **kwargs: Any) -> None:
        self.use_copy(copy_of(self.copy_name), self._revision_of)
        super().__init__(**kwargs)

    def _revision_of(self, folder: Path) -> str:
        return inspect_folder(folder, type(self).metadata.eval_splits[0]).revision()

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read the local copy, or fetch the data.

        Raises:
            DataUnavailableError: If there is no local copy and the data could not be fetched.
            FolderError: If the local copy has problems, or changed after the task was created.
        """
        if self.data_loaded:
            return
        copy = self.copy_to_read()
        if copy is None:
            try:
                self._fetch(num_proc, timer=timer, **kwargs)
            except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
                raise self.unavailable(error) from error
            return
        with (timer or TimingStack())("Data loading", log_message=f"Loading {copy}..."):
            folder = read_folder(copy, self.metadata.eval_splits[0])
            if folder.revision != self.metadata.revision:
                raise FolderError(copy, ["the data changed after the task was created; create it again"])
            load_into(self, folder)

    def _fetch(self, num_proc: int | None, *, timer: TimingStack | None, **kwargs: Any) -> None:
        """Load the data from the Hub as mteb does."""
        super().load_data(num_proc, timer=timer, **kwargs)
