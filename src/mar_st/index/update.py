"""Changing an index without rebuilding it.

Added documents become a new segment, coded like the first one. Small segments are merged, so that their
number grows with the logarithm of the additions. Deleted documents are marked and no longer found; `compact`
frees their space. Each change is one new manifest.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import counted, entry_of, sync_file, sync_folder
from mar_st.index import lexical
from mar_st.index.build import segment_entry, write_documents
from mar_st.index.corpus import encoded_corpus
from mar_st.index.documents import Documents, DocumentWriter
from mar_st.index.errors import IndexingError
from mar_st.index.folder import FolderIndex
from mar_st.index.manifest import SEGMENTS, publish, writing
from mar_st.index.registry import kind_of
from mar_st.index.source import FolderSource, JoinedSource, RowsSource, VectorSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mar_st.encode import VectorFolder
    from mar_st.index.documents import Stored
    from mar_st.index.segment import Segment

#: A segment is merged into an addition of at least this share of its size.
_MERGE_RATIO = 0.5

#: Share of deleted and added documents above which an index should be compacted.
WORN_SHARE = 0.3

#: Maximum characters of an id in a message.
_MAX_SHOWN_CHARACTERS = 60


def add(
    index: str | Path,
    vectors: VectorFolder | str | Path,
    *,
    corpus: str | Path | None = None,
    replace: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Add documents, or replace them.

    Args:
        index: Folder of the index.
        vectors: Folder of the vectors of the documents, by the same model.
        corpus: The documents; default the ones that were encoded.
        replace: The documents are in the index and get new vectors, texts and metadata (an update).
        progress: Show progress bars.

    Returns:
        The new manifest.

    Raises:
        IndexingError: The vectors do not fit, or ids are in the index already (without `replace`), or are not
            (with it).
    """
    from mar_st.encode import VectorFolder  # lazy: safetensors

    root = Path(index)
    folder = vectors if isinstance(vectors, VectorFolder) else VectorFolder.open(vectors)
    corpus = corpus if corpus is not None else encoded_corpus(folder)
    folder.verify()
    with writing(root):
        opened = FolderIndex.open_folder(root)
        opened.check_addition(folder, corpus)
        ids = folder.ids.to_pylist()
        rows_per_segment = opened.locate(ids)
        present = sum(map(len, rows_per_segment))
        if replace and present < len(ids):
            known = {name for segment, rows in zip(opened.segments, rows_per_segment, strict=True)
                     for name in segment.documents.ids_of(rows)}  # fmt: skip
            odd = [name for name in ids if name not in known]
            raise IndexingError(f"The index {root} lacks {_listed(odd)}; add instead of updating.")
        if present and not replace:
            odd = next(
                segment.documents.ids_of(rows)
                for segment, rows in zip(opened.segments, rows_per_segment, strict=True)
                if len(rows)
            )
            raise IndexingError(f"The index {root} has {_listed(odd, present)} already; update, do not add.")
        return _change(opened, rows_per_segment, folder, corpus, progress=progress)


def delete(index: str | Path, ids: Iterable[str]) -> dict[str, Any]:
    """Delete documents.

    Args:
        index: Folder of the index.
        ids: Their ids.

    Returns:
        The new manifest.

    Raises:
        IndexingError: There are no ids, some are not in the index, or no document would be left.
    """
    root, names = Path(index), list(dict.fromkeys(ids))
    if not names:
        raise IndexingError(f"No ids were given, so nothing was deleted from {root}. Give at least one id.")
    with writing(root):
        opened = FolderIndex.open_folder(root)
        rows_per_segment = opened.locate(names)
        if sum(map(len, rows_per_segment)) < len(names):
            known = {name for segment, rows in zip(opened.segments, rows_per_segment, strict=True)
                     for name in segment.documents.ids_of(rows)}  # fmt: skip
            odd = [name for name in names if name not in known]
            raise IndexingError(f"The index {root} lacks {_listed(odd)}, so nothing was deleted.")
        if len(names) == len(opened):
            raise IndexingError(f"No document of {root} would be left. Delete the folder instead.")
        return _change(opened, rows_per_segment, None, None, progress=False)


def compact(index: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Build one segment of the remaining documents, of the same kind, with unchanged search settings.

    Kinds that store float16 vectors are built from those.

    Args:
        index: Folder of the index.
        progress: Show progress bars.

    Returns:
        The new manifest.
    """
    root = Path(index)
    with writing(root):
        opened = FolderIndex.open_folder(root)
        opened.verify()  # damage would be copied, and get a valid digest
        manifest = opened.manifest
        parts = [_live(segment) for segment in opened.segments]
        source = RowsSource([(segment.searchable.vectors, rows) for segment, rows in parts])
        part = _new_segment(root, manifest)
        kind = kind_of(manifest["kind"])
        params = {**manifest["params"], **{name: kind.BUILD[name] for name in kind.REFITTED}}
        settings = kind.settings(params, source.dim, len(source))
        writer = DocumentWriter(part, manifest["fields"])
        for document in _documents(parts):
            writer.add(document)
        writer.close()
        kind.construct(part, source, settings, progress=progress)
        words = manifest["bm25"]
        if words:
            mean = lexical.build(part, Documents(part), words["tokens"], progress=progress)
            words = {**words, "mean_length": mean}
        entry = segment_entry(part, manifest["kind"], settings, len(source))
        memory = kind.memory(settings, source.dim, len(source))
        return _publish(root, manifest, [entry], {"params": settings, "bm25": words, "memory": memory})


def worn(manifest: dict[str, Any]) -> bool:
    """Return True if so many documents were added or deleted that the index should be compacted."""
    first, *others = manifest["segments"]
    dead = sum(segment["count"] - segment["live"] for segment in manifest["segments"])
    return bool(dead + sum(segment["live"] for segment in others) > WORN_SHARE * first["count"])


def _change(
    opened: FolderIndex,
    deleted_rows: Sequence[np.ndarray],
    folder: VectorFolder | None,
    corpus: str | Path | None,
    *,
    progress: bool,
) -> dict[str, Any]:
    """Mark rows as deleted, and add a segment, in one new manifest."""
    root, manifest = opened.folder, opened.manifest
    part = _new_segment(root, manifest)
    entries = []
    merged: list[tuple[Segment, np.ndarray]] = []
    for number, (segment, rows) in enumerate(zip(opened.segments, deleted_rows, strict=True)):
        remaining = len(segment) - len(segment.deleted if segment.deleted is not None else ()) - len(rows)
        if not remaining:
            continue
        if folder is not None and number and remaining * _MERGE_RATIO <= len(folder):
            segment.verify()
            merged.append((segment, np.setdiff1d(_live(segment)[1], rows)))
            continue
        entries.append(_with_deleted(root, part.name, segment, rows))
    changed: dict[str, Any] = {}
    if folder is not None:
        entry, fields = _addition(opened, part, folder, corpus, merged, progress=progress)
        entries.append(entry)
        changed = {"fields": {**manifest["fields"], **fields}}
    else:
        part.rmdir()
    return _publish(root, manifest, entries, changed)


def _addition(
    opened: FolderIndex,
    part: Path,
    folder: VectorFolder,
    corpus: str | Path | None,
    merged: list[tuple[Segment, np.ndarray]],
    *,
    progress: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build a segment of added documents and small segments; return its entry and the types of its fields."""
    manifest = opened.manifest
    sources: list[VectorSource] = [
        RowsSource([(segment.searchable.vectors, rows)]) for segment, rows in merged
    ]
    source = JoinedSource([*sources, FolderSource(folder)])
    fields = write_documents(
        part, folder, corpus, before=_documents(merged), fields=manifest["fields"], progress=progress
    )
    kind = manifest["kind"]
    if len(source) <= kind_of(kind).EXACT_UP_TO:
        kind = "exact"
    like = next((segment.folder for segment in opened.segments if segment.entry["kind"] == kind), None)
    params = manifest["params"] if kind == manifest["kind"] else {}
    kind_of(kind).construct(part, source, params, like=like, progress=progress)
    if manifest["bm25"]:
        words = manifest["bm25"]
        lexical.build(
            part, Documents(part), words["tokens"], mean_length=words["mean_length"], progress=progress
        )
    return segment_entry(part, kind, params, len(source)), fields


def _with_deleted(root: Path, generation: str, segment: Segment, rows: np.ndarray) -> dict[str, Any]:
    """Return a segment's entry with more rows deleted."""
    entry = dict(segment.entry)
    if len(rows):
        deleted = rows if segment.deleted is None else np.union1d(segment.deleted, rows)
        path = root / SEGMENTS / "deleted" / f"{generation}-{entry['name']}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, deleted.astype(np.int64), allow_pickle=False)
        sync_file(path)
        for place in (path.parent, path.parent.parent):
            sync_folder(place)
        file = path.relative_to(root / SEGMENTS).as_posix()
        entry["deleted"] = {"file": file, "count": len(deleted), **entry_of(path)}
        entry["live"] = entry["count"] - len(deleted)
    return entry


def _publish(
    root: Path, manifest: dict[str, Any], entries: list[dict[str, Any]], changed: dict[str, Any]
) -> dict[str, Any]:
    """Publish a manifest with new segments."""
    content = {
        **manifest, **changed, "generation": manifest["generation"] + 1, "segments": entries,
        "count": sum(entry["live"] for entry in entries),
    }  # fmt: skip
    return publish(root, manifest, content)


def _new_segment(root: Path, manifest: dict[str, Any]) -> Path:
    """Create the folder of the next generation's segment, without leftovers of a killed update."""
    part = root / SEGMENTS / f"{manifest['generation'] + 1:06d}"
    if part.exists():
        shutil.rmtree(part)
    for path in (root / SEGMENTS / "deleted").glob(f"{part.name}-*.npy"):
        path.unlink()
    part.mkdir()
    return part


def _live(segment: Segment) -> tuple[Segment, np.ndarray]:
    """Return the rows of a segment that are not deleted."""
    rows = np.arange(len(segment)) if segment.alive is None else segment.alive.rows
    return segment, rows


def _documents(parts: Iterable[tuple[Segment, np.ndarray]]) -> Iterable[Stored]:
    return (segment.documents.document(row) for segment, rows in parts for row in rows.tolist())


def _listed(names: Sequence[str], count: int | None = None) -> str:
    count = count or len(names)
    cut = (name[:_MAX_SHOWN_CHARACTERS] + "…" * (len(name) > _MAX_SHOWN_CHARACTERS) for name in names[:3])
    shown = ", ".join(map(repr, cut)) + (", ..." if count > 3 else "")
    return f"{counted(count, 'document')} ({shown})"
