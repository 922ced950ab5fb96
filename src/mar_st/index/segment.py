"""One segment of an index: vectors, documents, what was deleted."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.index.documents import Documents
from mar_st.index.errors import IndexingError
from mar_st.index.kinds import Searchable
from mar_st.index.manifest import SEGMENTS
from mar_st.index.mask import Mask

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.index.filters import Filter


class Segment:
    """A segment as a manifest names it, mapped into memory.

    Args:
        root: Folder of the index.
        entry: What its manifest says of the segment.

    Raises:
        IndexingError: A file has another size than the manifest says.
        FileNotFoundError: A file is not there.
    """

    def __init__(self, root: Path, entry: dict[str, Any]) -> None:
        self.entry = entry
        self.folder = root / SEGMENTS / entry["name"]
        for name, file in entry["files"].items():
            size = (self.folder / name).stat().st_size
            if size != file["bytes"]:
                raise IndexingError(
                    f"{self.folder / name} has {size} bytes; {file['bytes']} were written. Copy the index "
                    "again."
                )
        self.documents = Documents(self.folder)
        self.searchable = Searchable(self.folder, entry["kind"])
        self.deleted: np.ndarray | None = None
        if entry["deleted"]:
            self.deleted = np.load(root / SEGMENTS / entry["deleted"]["file"], allow_pickle=False)

    def __len__(self) -> int:
        return int(self.entry["count"])

    @cached_property
    def alive(self) -> Mask | None:
        """Rows that are not deleted; `None`: all of them."""
        if self.deleted is None:
            return None
        kept = np.ones(len(self), dtype=bool)
        kept[self.deleted] = False
        return Mask(kept)

    def mask(self, where: Filter) -> Mask:
        """Rows that pass a typed filter and are not deleted."""
        passed = self.documents.mask(where)
        if self.deleted is not None:
            passed[self.deleted] = False
        return Mask(passed)

    def find(self, ids: list[str]) -> np.ndarray:
        """Rows with one of these ids that are not deleted."""
        rows = self.documents.find(ids)
        return rows if self.deleted is None else np.setdiff1d(rows, self.deleted)
