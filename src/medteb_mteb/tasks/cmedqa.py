"""CMedQA reranking: mteb's own two tasks, which may also read a local copy of their data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.tasks import CMedQAv1, CMedQAv2
from mteb.timing import TimingStack

from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.abstasks.statistics import LocalMetadata, LocalStatistics
from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.folders import FolderError, inspect_folder, load_into, read_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask

NO_REVISION = "unreadable-local-copy"


class DataUnavailableError(RuntimeError):
    """The data of a public task could be had neither from the Hub nor from a local copy."""


class _LocalCopy(LocalStatistics, JudgedRetrieval):
    """Reads ``$MEDTEB_DATA/<task name>/`` if it exists, and the Hub otherwise.

    The dataset revision of a local copy is the digest of its files (of its manifest if it has one), so such a
    score never passes for one on the pinned Hub revision.
    """

    revision_matters = True  # see registry._keep_editions_apart

    def __init__(self, **kwargs: Any) -> None:
        self.local_copy = _local_copy(type(self).metadata.name)
        self._problem: Exception | None = None
        if self.local_copy is not None:
            try:
                revision = inspect_folder(self.local_copy).revision()
            except (ValueError, OSError) as error:  # reported by load_data; see EditionTask
                self._problem, revision = error, NO_REVISION
            content = type(self).metadata.model_dump()
            content["dataset"]["revision"] = revision
            self.metadata = LocalMetadata.in_folder(self.local_copy, content)
        self._own_metadata = self.metadata
        super().__init__(**kwargs)

    def unload_data(self) -> None:
        """Drops the data; the metadata stays that of the copy (mteb would fall back on the class)."""
        super().unload_data()
        self.metadata = self._own_metadata

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
        if self.local_copy is None:
            self._fetch(num_proc, timer=timer, **kwargs)
            return
        if self._problem is not None:
            raise self._problem

        with (timer or TimingStack())("Data loading", log_message=f"Loading {self.local_copy}..."):
            folder = read_folder(self.local_copy)
            if folder.revision != self.metadata.revision:
                raise FolderError(
                    self.local_copy, ["the data changed after the task was created; create it again"]
                )
            load_into(self, folder)

    def _fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        name, path = self.metadata.name, self.metadata.dataset["path"]
        try:
            super().load_data(num_proc, **kwargs)
        except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
            root = os.environ.get(DATA_VARIABLE)
            where = f"{root}/{name}/" if root else f"a folder {name}/ and set {DATA_VARIABLE} to its parent"
            raise DataUnavailableError(
                f"{name} could not be fetched from the Hub ({path}): {_first_line(error)}. "
                f"On a machine with access run `hf download --repo-type dataset {path} --local-dir {name}`, "
                f"then put the copy at {where}. Results of tasks that ran before are saved."
            ) from error


class CMedQAv1Local(_LocalCopy, CMedQAv1):
    """mteb's CMedQAv1-reranking with the local copy as an option."""


class CMedQAv2Local(_LocalCopy, CMedQAv2):
    """mteb's CMedQAv2-reranking with the local copy as an option."""


REPLACED: Mapping[type[AbsTask], type[AbsTask]] = {CMedQAv1: CMedQAv1Local, CMedQAv2: CMedQAv2Local}


def _local_copy(name: str) -> Path | None:
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        return None
    folder = Path(root).expanduser() / name
    return folder if folder.is_dir() else None


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
