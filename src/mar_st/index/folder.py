"""Index in a folder: its segments are mapped into memory and searched one by one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mar_st.index import flat
from mar_st.index.base import (
    Index,
    Key,
    MeasurementField,
    ScoredKeys,
    check_scores,
    checked_settings,
    store,
)
from mar_st.index.errors import IndexingError
from mar_st.index.lexical import Lexical, LexicalSegment
from mar_st.index.manifest import publish, read_manifest, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.index.documents import Stored
    from mar_st.index.filters import Filter
    from mar_st.index.mask import Mask

#: Maximum number of filters whose masks are cached.
_MAX_CACHED_FILTERS = 64


@store("folder")
class FolderIndex(Index):
    """An index in a folder, mapped into memory.

    Args:
        folder: The folder.
        manifest: Its manifest.

    Attributes:
        manifest: Content of the manifest that was opened.
        segments: The segments.

    Raises:
        IndexingError: A file is not the one that the manifest lists, or holds other types of metadata.
        FileNotFoundError: A file is missing.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        from mar_st.index.segment import Segment  # lazy: pyarrow

        self.folder, self.manifest, self.name = folder, manifest, str(folder)
        self.dim, self.similarity = manifest["dim"], manifest["similarity"]
        self.space, self.kind, self.fields = manifest["space"], manifest["kind"], manifest["fields"]
        self.model = (manifest["model"] or {}).get("name")
        self.has_texts, self.has_words = manifest["texts"], manifest["bm25"] is not None
        self.settings = manifest["search"]
        self.efforts, self.matches = manifest.get("efforts", {}), manifest.get("matches", {})
        self.segments = [
            Segment(folder, entry, self.dim, words=self.has_words) for entry in manifest["segments"]
        ]
        for segment in self.segments:
            segment.documents.check(self.fields)
        self._starts = np.cumsum([0, *map(len, self.segments)])
        words: list[LexicalSegment] = [part.words for part in self.segments if part.words is not None]
        self._words = Lexical(words, manifest["bm25"]["tokens"]) if self.has_words else None
        self._masks: OrderedDict[Filter, list[Mask]] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, target: str) -> Self:
        """Open a folder, see `Index.open`."""
        return cls.open_folder(Path(target))

    @classmethod
    def open_folder(cls, folder: Path) -> Self:
        """Open the folder with its current manifest.

        Raises:
            IndexingError: The folder is not an index, or files are missing or damaged.
        """
        manifest = read_manifest(folder)
        for _ in range(8):
            try:
                return cls(folder, manifest)
            except (FileNotFoundError, NotADirectoryError) as error:
                current = read_manifest(folder)
                if current["generation"] == manifest["generation"]:
                    raise IndexingError(
                        f"The index {folder} lacks {error.filename or error}. Copy it there, or build it "
                        "again."
                    ) from error
                manifest = current  # it was compacted meanwhile
        raise IndexingError(f"The index {folder} changes faster than it can be opened. Try again later.")

    def __len__(self) -> int:
        return sum(segment["live"] for segment in self.manifest["segments"])

    @property
    def generation(self) -> int:
        """Return the number of changes; a manifest with a higher one was changed since it was opened."""
        return int(self.manifest["generation"])

    def changed(self) -> bool:
        """Return True if the folder holds a newer generation of the index than the one opened."""
        return bool(read_manifest(self.folder)["generation"] != self.generation)

    def verify(self) -> None:
        """Compare the digest of every file with the manifest.

        Raises:
            IndexingError: A file differs from what was written.
        """
        for segment in self.segments:
            segment.verify()

    def find(
        self, vectors: np.ndarray, k: int, where: Filter | None, settings: Mapping[str, int] | None = None
    ) -> ScoredKeys:
        """Search all segments and merge their best rows, as `Index.find`."""
        merged = checked_settings({**self.settings, **(settings or {})}, self.name)
        best = []
        masks = self._masks_of(where)
        for segment, mask, start in zip(self.segments, masks, self._starts, strict=False):
            scores, rows = segment.searchable.search(vectors, k, mask=mask, settings=merged)
            best.append((scores, np.where(rows >= 0, rows + start, -1)))
        scores, rows = best[0] if len(best) == 1 else flat.merge(best, k)
        check_scores(scores, rows >= 0, self.similarity, self.name)
        return _scored_keys(scores, rows)

    def exact(self, vectors: np.ndarray, k: int) -> np.ndarray:
        """Return the rows that a comparison with all stored vectors finds.

        Args:
            vectors: Checked query vectors, `(n, dim)`.
            k: Rows per query.

        Returns:
            Rows in the index, `(n, k)` int64; -1 where there are fewer.
        """
        best = []
        for segment, start in zip(self.segments, self._starts, strict=False):
            scores, rows = flat.search(vectors, segment.searchable.vectors, k, mask=segment.alive)
            best.append((scores, np.where(rows >= 0, rows + start, -1)))
        return flat.merge(best, k)[1]

    def find_words(
        self, texts: Sequence[str], k: int, where: Filter | None, *, deadline: float | None = None
    ) -> ScoredKeys:
        """Search the words of all segments (BM25), as `Index.find_words`.

        Raises:
            IndexingError: The index was built without BM25.
            DeadlinePassed: `deadline` of `time.monotonic()` has passed.
        """
        if self._words is None:
            raise IndexingError(
                f"{self.name} cannot be searched by words. Build it with the corpus and without --no-bm25."
            )
        return _scored_keys(*self._words.search(texts, k, self._masks_of(where), deadline=deadline))

    def documents(self, keys: Sequence[Key]) -> list[Stored]:
        """Read the documents of some hits from their segments, as `Index.documents`."""
        rows = np.array(keys, dtype=np.int64)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        stored: dict[int, Stored] = {}
        for number in np.unique(numbers).tolist():
            here = rows[numbers == number]
            read = self.segments[number].documents.documents((here - self._starts[number]).tolist())
            stored.update(zip(here.tolist(), read, strict=True))
        return [stored[row] for row in rows.tolist()]

    def find_documents(self, names: Sequence[str]) -> dict[str, Stored]:
        """Look ids up in all segments and read their documents, as `Index.find_documents`."""
        parts = zip(self.segments, self.locate(names), strict=True)
        read = (segment.documents.documents(rows.tolist()) for segment, rows in parts)
        return {document.id: document for documents in read for document in documents}

    def ids(self, scored: ScoredKeys) -> list[list[str]]:
        """Return the ids of the hits, as `Index.ids`."""
        lengths = [len(keys) for keys in scored.keys]
        rows = np.array([key for keys in scored.keys for key in keys], dtype=np.int64)
        if len(self.segments) == 1 and len(lengths) == 1:
            return [self.segments[0].documents.ids_of(rows)]
        names = np.empty(len(rows), dtype=object)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(numbers):
            here = np.flatnonzero(numbers == number)
            names[here] = self.segments[number].documents.ids_of(rows[here] - self._starts[number])
        ends = np.cumsum([0, *lengths])
        return [names[start:end].tolist() for start, end in pairwise(ends)]

    def sample(self, count: int) -> list[tuple[int, Stored]]:
        """Return documents spread evenly over the index, with their keys; all if there are no more."""
        live = np.concatenate(
            [
                start + (np.arange(len(segment)) if segment.alive is None else segment.alive.rows)
                for segment, start in zip(self.segments, self._starts, strict=False)
            ]
        )
        chosen = np.unique(np.linspace(0, len(live) - 1, min(count, len(live))).round().astype(int))
        keys: list[int] = live[chosen].tolist()
        return list(zip(keys, self.documents(keys), strict=True))

    def keep(self, field: MeasurementField, origin: str, entry: dict[str, Any]) -> None:
        """Write what was measured for a query encoder into the manifest, as `Index.keep`."""
        with writing(self.folder):
            manifest = read_manifest(self.folder)
            entries = {**manifest.get(field, {}), origin: entry}
            updated = {**manifest, field: entries, "generation": manifest["generation"] + 1}
            publish(self.folder, manifest, updated)

    def locate(self, ids: Sequence[str]) -> list[np.ndarray]:
        """Return the rows of some ids in each segment, deleted ones left out."""
        return [segment.find(list(ids)) for segment in self.segments]

    def _masks_of(self, where: Filter | None) -> Sequence[Mask | None]:
        """Return for each segment the rows that may be found; `None`: all."""
        if where is None:
            return [segment.alive for segment in self.segments]
        typed = where.typed(self.fields)
        with self._lock:
            if typed in self._masks:
                self._masks.move_to_end(typed)
                return self._masks[typed]
        masks = [segment.mask(typed) for segment in self.segments]
        with self._lock:
            self._masks[typed] = masks
            while len(self._masks) > _MAX_CACHED_FILTERS:
                self._masks.popitem(last=False)
        return masks


def _scored_keys(scores: np.ndarray, rows: np.ndarray) -> ScoredKeys:
    return ScoredKeys([row[row >= 0].tolist() for row in rows], scores)
