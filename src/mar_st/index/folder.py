"""An index in a folder: immutable segments, and a manifest that names them.

A segment is a folder of files that never change after a manifest names them. An update writes new files and
then replaces the manifest, so a reader sees the index before or after it, and a killed update leaves the
index unchanged. Files that neither the new nor the previous manifest names are deleted by an update.
"""

from __future__ import annotations

import re
import shutil
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.errors import MarError
from mar_st.files import load_array, read_json, write_json
from mar_st.index import flat
from mar_st.index.base import Index, Key, ScoredKeys
from mar_st.index.documents import Documents
from mar_st.index.flat import Mask
from mar_st.index.vectors import VectorIndex
from mar_st.index.words import SegmentWords, search_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mar_st.data.corpus import Entry
    from mar_st.index.filters import Filter

MANIFEST = "manifest.json"
FORMAT, VERSION = "mar-index", 3

#: Names of segments, by the generation that wrote them, and of lists of deleted rows.
_SEGMENT = re.compile(r"[0-9]{6,12}")
_DELETED = re.compile(r"[0-9]{6,12}-[0-9]{6,12}\.npy")

#: Maximum number of filters whose masks are cached.
_MAX_CACHED_FILTERS = 64


class Segment:
    """A segment as a manifest names it, mapped into memory.

    Args:
        root: Folder of the index.
        entry: Entry of the segment in the manifest.
        words: Whether the segment has BM25 scores.

    Raises:
        MarError: The files are not those that were written.
    """

    def __init__(self, root: Path, entry: dict[str, Any], *, words: bool) -> None:
        self.entry, self.count, folder = entry, int(entry["count"]), root / entry["name"]
        if sizes(folder) != entry["files"]:
            raise MarError(f"{folder} does not hold the files that were written. Copy the index again.")
        self.documents = Documents(folder)
        self.index = VectorIndex(folder, entry["kind"])
        self.words = SegmentWords(folder, self.count) if words else None
        self.alive = np.ones(self.count, dtype=bool)
        if entry["deleted"]:
            self.alive[load_array(root / entry["deleted"])] = False
        self.mask = None if self.alive.all() else Mask(self.alive)

    def find(self, ids: Sequence[str]) -> np.ndarray:
        """Return the rows with one of these ids that are not deleted."""
        rows: np.ndarray = self.documents.find(ids)
        return np.asarray(rows[self.alive[rows]])


def sizes(folder: Path) -> dict[str, int]:
    """Return the size of every file below a folder, in bytes, by its path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


class FolderIndex(Index):
    """An index in a folder, mapped into memory.

    Args:
        folder: The folder.
        manifest: Its manifest.

    Attributes:
        segments: The segments.

    Raises:
        MarError: A file is not the one that the manifest lists.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(str(folder), manifest)
        self.folder = folder
        self.segments = [Segment(folder, entry, words=self.has_words) for entry in manifest["segments"]]
        # A list: looking up one number in it is faster than in an array.
        self._starts = [0, *accumulate(segment.count for segment in self.segments)]
        self._filtered = lru_cache(_MAX_CACHED_FILTERS)(self._masks)

    @classmethod
    def connect(cls, target: str | Path) -> Self:
        """Open the folder with its current manifest, see `Index.open`."""
        folder = Path(target)
        manifest = read_manifest(folder)
        try:
            return cls(folder, manifest)
        except (KeyError, TypeError, AttributeError, ValueError, OSError, RuntimeError) as error:
            if read_manifest(folder) != manifest:  # it was changed meanwhile
                return cls.connect(folder)
            if isinstance(error, MarError):
                raise
            raise MarError(f"The index {folder} is damaged ({error!r}). Copy it again.") from error

    def __len__(self) -> int:
        return int(sum(segment.alive.sum() for segment in self.segments))

    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Search all segments and merge their best rows, as `Index.find`."""
        wanted = {**self.settings, **(settings or {})}
        return self._merged(lambda one, mask: one.index.search(vectors, k, wanted, mask=mask), k, where)

    def exact(self, vectors: np.ndarray, k: int) -> ScoredKeys:
        """Return what a comparison with all stored vectors finds, see `find`."""
        return self._merged(lambda one, mask: flat.search(vectors, one.index.vectors, k, mask=mask), k, None)

    def _merged(
        self, search: Callable[[Segment, Mask | None], flat.Found], k: int, where: Filter | None
    ) -> ScoredKeys:
        """Search all segments and merge their best rows."""
        best = []
        for segment, mask, start in zip(self.segments, self._masks_of(where), self._starts, strict=False):
            scores, rows = search(segment, mask)
            best.append((scores, np.where(rows >= 0, rows + start, -1)))
        return _scored(*(best[0] if len(best) == 1 else flat.merge(best, k)))

    def find_words(self, texts: Sequence[str], k: int, where: Filter | None) -> ScoredKeys:
        """Search the words of all segments (BM25), as `Index.find_words`."""
        words = [segment.words for segment in self.segments if segment.words is not None]
        if not self.has_words:
            return super().find_words(texts, k, where)
        masks = self._masks_of(where)
        found = [search_words(words, text, k, masks) for text in texts]
        if not found:
            return ScoredKeys([], np.empty((0, k), np.float32))
        return _scored(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def documents(self, keys: Sequence[Key]) -> list[Entry]:
        """Read the documents of some rows, as `Index.documents`."""
        return [segment.documents[row] for segment, row in map(self._place, keys)]

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Return the ids of some rows, as `Index.ids`."""
        return [segment.documents.id(row) for segment, row in map(self._place, keys)]

    def document(self, name: str) -> Entry | None:
        """Look an id up in all segments, as `Index.document`."""
        found = (segment.documents[int(row)] for segment in self.segments for row in segment.find([name]))
        return next(found, None)

    def _place(self, key: Key) -> tuple[Segment, int]:
        number = bisect_right(self._starts, int(key)) - 1
        return self.segments[number], int(key) - self._starts[number]

    def _masks_of(self, where: Filter | None) -> list[Mask | None]:
        """Return for each segment the rows that may be found; `None`: all."""
        if where is None:
            return [segment.mask for segment in self.segments]
        return self._filtered(where.typed(self.fields))

    def _masks(self, typed: Filter) -> list[Mask | None]:
        return [Mask(segment.documents.mask(typed) & segment.alive) for segment in self.segments]


def _scored(scores: np.ndarray, rows: np.ndarray) -> ScoredKeys:
    return ScoredKeys([row[row >= 0].tolist() for row in rows], scores)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an index; the names in it stay in the folder.

    Raises:
        MarError: The folder is not an index, damaged, or of another version.
    """
    path = folder / MANIFEST
    try:
        content: dict[str, Any] = read_json(path)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise MarError(f"{path}: expected {FORMAT} version {VERSION}. Build the index again.")
        for segment in content["segments"]:
            deleted = segment["deleted"]
            if not _SEGMENT.fullmatch(segment["name"]) or (deleted and not _DELETED.fullmatch(deleted)):
                raise ValueError(f"the names {segment['name']!r} and {deleted!r}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MarError(f"{folder} is not an index; 'mar index build' builds one.") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, MarError):
            raise
        raise MarError(f"{path} is damaged ({error}). Copy the index again.") from error
    return content


def publish(folder: Path, before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Replace the manifest of a locked index, and delete files that neither manifest names.

    Files that only `before` names stay until the next change: a reader may be about to open them.

    Returns:
        The manifest that was written.
    """
    content = {**after, "generation": before["generation"] + 1}
    content["count"] = sum(entry["live"] for entry in content["segments"])
    write_json(folder / MANIFEST, content)
    entries = [*before["segments"], *content["segments"]]
    used = {name for entry in entries for name in (entry["name"], entry["deleted"])}
    for path in written(folder):
        if path.name not in used:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return content


def written(folder: Path) -> list[Path]:
    """Return the segments and lists of deleted rows in a folder, whether a manifest names them or not."""
    return [
        path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name) or _DELETED.fullmatch(path.name)
    ]
