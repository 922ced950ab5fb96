"""Descriptive statistics of local data, stored beside the data by digest, never in mteb's installation.

mteb stores the statistics of a task in its own package, by the task's name only, so the statistics of one
edition would be shown for all others.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from pydantic import PrivateAttr

from mar_st.files import write_json
from medteb_mteb.editions import STATISTICS, EditionError

if TYPE_CHECKING:
    from typing import Self

    from mteb.types.statistics import DescriptiveStatistics

__all__ = ["LocalMetadata", "LocalStatistics"]


class LocalMetadata(TaskMetadata):
    """Metadata of a task with data in a folder: the statistics are `descriptive_stats/<revision>.json` there.

    Statistics of other data, such as those before an edit, have another digest and are not found.
    """

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def in_folder(cls, folder: Path | None, content: dict[str, Any]) -> Self:
        """Return metadata from its fields; a folder of None has no statistics.

        Raises:
            ValueError: If mteb does not accept a field.
        """
        metadata = cls.model_validate(content)
        metadata._folder = Path() if folder is None else folder
        return metadata

    @property
    def descriptive_stat_path(self) -> Path:
        """Return the path of the statistics of this revision of the data."""
        return self._folder / STATISTICS / f"{self.revision}.json"


class LocalStatistics(AbsTask):
    """Computes statistics into the data's folder; put it before mteb's task class in the bases.

    A subclass sets `self.metadata` before it calls this constructor; unloading the data restores them.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._own_metadata = self.metadata
        super().__init__(**kwargs)

    def unload_data(self) -> None:
        """Drop the data and restore the task's metadata (mteb would fall back on those of its class)."""
        super().unload_data()
        self.metadata = self._own_metadata

    def calculate_descriptive_statistics(
        self, overwrite_results: bool = False, num_proc: int | None = None
    ) -> dict[str, DescriptiveStatistics]:
        """Return statistics as mteb defines them, read from the data's folder or computed and kept there.

        Raises:
            EditionError: If the folder cannot be written to.
        """
        own = self.metadata
        if not isinstance(own, LocalMetadata):  # data of the Hub: left to mteb
            return super().calculate_descriptive_statistics(overwrite_results, num_proc)
        if (stored := own.descriptive_stats) is not None and not overwrite_results:
            return stored
        with tempfile.TemporaryDirectory() as scratch:
            self.metadata = LocalMetadata.in_folder(Path(scratch), own.model_dump())  # mteb writes there
            try:
                statistics = super().calculate_descriptive_statistics(True, num_proc)
            finally:
                self.metadata = own
        _write(own.descriptive_stat_path, statistics)
        return statistics


def _write(target: Path, statistics: dict[str, DescriptiveStatistics]) -> None:
    try:
        target.parent.mkdir(exist_ok=True)
        write_json(target, statistics, indent=4)
    except OSError as error:
        raise EditionError(
            f"{target} cannot be written ({error.strerror}). Statistics are kept beside the data: copy the "
            "folder to where you may write, or ask its owner to compute them."
        ) from None
