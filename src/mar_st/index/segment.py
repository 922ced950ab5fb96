"""One segment of an index: its vectors, documents and deleted rows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import check_file
from mar_st.files.arrays import load_array
from mar_st.index.documents import Documents
from mar_st.index.errors import IndexingError
from mar_st.index.lexical import LexicalSegment
from mar_st.index.manifest import SEGMENTS
from mar_st.index.mask import Mask
from mar_st.index.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.files import Check
    from mar_st.index.filters import Filter


class Segment:
    """A segment as a manifest names it, mapped into memory.

    All files are opened, so that they stay readable if a later update deletes them. Their sizes, headers
    and sampled blocks are compared with the manifest.

    Args:
        root: Folder of the index.
        entry: Entry of the segment in the manifest.
        dim: Dimensions of the vectors.
        words: Whether the segment has BM25 scores.

    Attributes:
        words: The BM25 scores, if it has them.

    Raises:
        IndexingError: A file is not the one that the manifest lists.
        FileNotFoundError: A file is missing.
    """

    def __init__(self, root: Path, entry: dict[str, Any], dim: int, *, words: bool) -> None:
        self.entry = entry
        self.folder = root / SEGMENTS / entry["name"]
        for name, file in entry["files"].items():
            _compare(self.folder / name, file, "sample")
        self.documents = Documents(self.folder)
        self.searchable = kind_of(entry["kind"])(self.folder)
        self.searchable.check(entry["count"], dim)
        self.words = LexicalSegment(self.folder, entry["count"]) if words else None
        if len(self.documents) != entry["count"]:
            raise IndexingError(
                f"{self.folder} holds {len(self.documents)} documents; {entry['count']} were written. "
                "Copy the index again, or build it again."
            )
        self.deleted: np.ndarray | None = None
        if entry["deleted"]:
            path = root / SEGMENTS / entry["deleted"]["file"]
            _compare(path, entry["deleted"], "whole")
            self.deleted = _rows(path, entry["deleted"]["count"], entry["count"])

    def __len__(self) -> int:
        return int(self.entry["count"])

    @cached_property
    def alive(self) -> Mask | None:
        """Return the rows that are not deleted; `None`: all of them."""
        if self.deleted is None:
            return None
        flags = np.ones(len(self), dtype=bool)
        flags[self.deleted] = False
        return Mask(flags)

    def mask(self, where: Filter) -> Mask:
        """Return the rows that pass a typed filter and are not deleted."""
        passed = self.documents.mask(where)
        if self.deleted is not None:
            passed[self.deleted] = False
        return Mask(passed)

    def find(self, ids: list[str]) -> np.ndarray:
        """Return the rows with one of these ids that are not deleted."""
        rows = self.documents.find(ids)
        return rows if self.deleted is None else np.setdiff1d(rows, self.deleted)

    def verify(self) -> None:
        """Compare all bytes of all files with the manifest.

        Raises:
            IndexingError: A file was changed or is missing.
        """
        files = {self.folder / name: file for name, file in self.entry["files"].items()}
        if self.entry["deleted"]:
            files[self.folder.parent / self.entry["deleted"]["file"]] = self.entry["deleted"]
        for path, file in files.items():
            try:
                _compare(path, file, "whole")
            except FileNotFoundError as error:
                raise IndexingError(f"{path} is missing. Copy the index again.") from error


def _compare(path: Path, entry: Mapping[str, Any], check: Check) -> None:
    difference = check_file(path, entry, check)
    if difference is not None:
        raise IndexingError(f"{path} {difference}. Copy the index again, or build it again.")


def _rows(path: Path, deleted: int, count: int) -> np.ndarray:
    """Return the rows that were deleted, ascending int64."""
    try:
        rows = load_array(path)
    except ValueError as error:
        raise IndexingError(f"{path} is damaged ({error}). Copy the index again.") from error
    ascending = rows.shape == (deleted,) and rows.dtype == np.int64 and bool((np.diff(rows) > 0).all())
    if not ascending or rows[0] < 0 or rows[-1] >= count:
        raise IndexingError(
            f"{path} does not list {deleted} of {count} rows in ascending order. Copy the index again."
        )
    return rows
