"""Tasks whose data come from a copy on this machine if there is one, and from the Hub otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.abstasks.statistics import LocalMetadata, LocalStatistics
from medteb_mteb.editions import DATA_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DataUnavailableError", "LocalCopy", "copy_of", "fetch_failed"]

NO_REVISION = "unreadable-local-copy"


class DataUnavailableError(RuntimeError):
    """Neither the Hub nor a local copy provides the data of a public task."""


class LocalCopy(LocalStatistics):
    """A task that may read a local copy of its data; put it before mteb's task class in the bases.

    The dataset revision of a copy is a digest of its files, so its scores are never confused with those of
    the Hub's data.

    Attributes:
        local_copy: Folder of the copy; None if the data come from the Hub.
    """

    revision_matters = True  # see registry._keep_editions_apart
    local_copy: Path | None

    def use_copy(self, folder: Path | None, revision: Callable[[Path], str]) -> None:
        """Take a folder as the data's copy; call it before the constructor of mteb's class.

        A copy that cannot be read is reported by `copy_to_read`: mteb constructs every task only to list it.

        Args:
            folder: The folder; None for the Hub.
            revision: Returns the digest of the files of a folder.
        """
        self.local_copy = folder
        self._problem: Exception | None = None
        if folder is not None:
            try:
                digest = revision(folder)
            except (ValueError, OSError) as error:
                self._problem, digest = error, NO_REVISION
            content = type(self).metadata.model_dump()
            content["dataset"]["revision"] = digest
            self.metadata = LocalMetadata.in_folder(folder, content)

    def copy_to_read(self) -> Path | None:
        """Return the folder of the copy, None for the Hub.

        Raises:
            ValueError: The revision of the copy could not be computed, because the copy is unusable.
            OSError: The copy could not be read.
        """
        if self._problem is not None:
            raise self._problem
        return self.local_copy

    def unavailable(self, error: Exception) -> DataUnavailableError:
        """Return an error that says why the Hub did not give the data, and where to put a copy."""
        hub = str(self.metadata.dataset["path"])
        saved = "Results of tasks that ran before are saved."
        return fetch_failed(str(self.metadata.name), hub, self.copy_name, error, saved)

    @property
    def copy_name(self) -> str:
        """Return the name of the copy's folder in `$MEDTEB_DATA`: the task's."""
        return str(type(self).metadata.name)


def fetch_failed(what: str, hub: str, name: str, error: Exception, more: str = "") -> DataUnavailableError:
    """Return an error that says why the Hub did not give data, and where to put a copy.

    Args:
        what: The data, as the message names them.
        hub: Name of the data set on the Hub.
        name: Name of the copy's folder in `$MEDTEB_DATA`.
        error: The error of the Hub client.
        more: Last sentence.
    """
    root = os.environ.get(DATA_VARIABLE)
    where = f"{root}/{name}/" if root else f"a folder {name}/ and set {DATA_VARIABLE} to its parent"
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
    message = (
        f"{what} could not be fetched from the Hub ({hub}): {reason}. On a machine with access run `hf "
        f"download --repo-type dataset {hub} --local-dir {name}`, then put the copy at {where}. {more}"
    )
    return DataUnavailableError(message.rstrip())


def copy_of(name: str) -> Path | None:
    """Return `$MEDTEB_DATA/<name>` if there is such a folder.

    Args:
        name: Name of the folder.
    """
    root = os.environ.get(DATA_VARIABLE)
    folder = Path(root).expanduser().absolute() / name if root else None
    return folder if folder is not None and folder.is_dir() else None
