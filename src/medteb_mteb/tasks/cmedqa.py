"""CMedQA reranking: mteb's own two tasks, which may also read a local copy of their data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.tasks import CMedQAv1, CMedQAv2
from mteb.timing import TimingStack

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.abstasks.local_copy import LocalCopy, copy_of
from medteb_mteb.folders import FolderError, inspect_folder, load_into, read_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask


class _LocalCopy(LocalCopy, JudgedRetrieval):
    """Reads ``$MEDTEB_DATA/<task name>/`` if it exists, and the Hub otherwise."""

    def __init__(self, **kwargs: Any) -> None:
        self.use_copy(copy_of(self.copy_name), lambda folder: inspect_folder(folder).revision())
        super().__init__(**kwargs)

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Reads the local copy, or has mteb fetch the data.

        Raises:
            DataUnavailableError: If there is no local copy and mteb could not fetch the data.
            FolderError: If the local copy has problems, or changed after the task was created.
        """
        if self.data_loaded:
            return
        copy = self.copy_to_read()
        if copy is None:
            try:
                super().load_data(num_proc, timer=timer, **kwargs)
            except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
                raise self.unavailable(error) from error
            return
        with (timer or TimingStack())("Data loading", log_message=f"Loading {copy}..."):
            folder = read_folder(copy)
            if folder.revision != self.metadata.revision:
                raise FolderError(copy, ["the data changed after the task was created; create it again"])
            load_into(self, folder)


class CMedQAv1Local(_LocalCopy, CMedQAv1):
    """mteb's CMedQAv1-reranking with the local copy as an option."""


class CMedQAv2Local(_LocalCopy, CMedQAv2):
    """mteb's CMedQAv2-reranking with the local copy as an option."""


REPLACED: Mapping[type[AbsTask], type[AbsTask]] = {CMedQAv1: CMedQAv1Local, CMedQAv2: CMedQAv2Local}
