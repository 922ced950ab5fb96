"""Building an index from a folder of vectors and its corpus, and changing it without a new build.

Added documents become a segment that is compared exactly, small ones are merged. Deleted documents are marked
and no longer found. A change that makes these more than a fifth of the index builds all of it again.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.data.rows import HUB, PACKAGE
from mar_st.encode.vectors import Vectors
from mar_st.errors import MarError
from mar_st.files import finished_folder, locked, write_json
from mar_st.index.base import MILVUS_PREFIX
from mar_st.index.documents import documents_of, write_documents
from mar_st.index.folder import (
    FORMAT,
    MANIFEST,
    VERSION,
    FolderIndex,
    Segment,
    publish,
    read_manifest,
    sizes,
    written,
)
from mar_st.index.tune import calibrated, made_queries
from mar_st.index.vectors import build_settings, build_vectors
from mar_st.index.words import build_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mar_st.encode.folder import VectorFolder

#: Values in all vectors up to which exact search answers within some milliseconds.
_FEW_VALUES = 100_000_000

#: Added segments of at most this many times the documents of an addition are merged into it.
_MERGE_RATIO = 2

#: Share of deleted and added documents above which an index is built again.
_WORN_SHARE = 0.2


def build_index(
    vectors: VectorFolder | str | Path,
    out: str | Path,
    *,
    corpus: str | Path | None = None,
    kind: str = "auto",
    bm25: bool = True,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Build an index beside its place, and move it there.

    Args:
        vectors: A folder of vectors that `mar encode` wrote.
        out: Folder of the index; or `milvus:PATH.db`, `milvus:http://HOST:PORT`, each optionally followed by
            `/COLLECTION`.
        corpus: The documents, for texts, metadata and BM25; default the encoded corpus, if it still exists.
        kind: `exact`, `hnsw`, `ivf-pq`; `auto`: `exact` for few vectors, `hnsw` for many.
        bm25: Also index words, if there is a corpus.
        progress: Show progress bars.
        say: Receives a line for each step.

    Returns:
        The manifest.

    Raises:
        MarError: An argument does not fit, or the folder already holds an index.
    """
    folder = _opened(vectors)
    if folder.similarity not in ("cosine", "dot"):
        raise MarError(f"{folder.path} is compared by {folder.similarity}; an index takes cosine and dot.")
    corpus = corpus if corpus is not None else encoded_corpus(folder)
    source = compared(folder)
    if str(out).startswith(MILVUS_PREFIX):
        from mar_st.index.milvus import build_milvus  # lazy: pymilvus

        return build_milvus(folder, str(out), corpus=corpus, kind=kind, progress=progress)
    root = Path(out)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise MarError(f"{root} holds files already. Give a new folder, or use 'mar index update'.")
    if corpus is None:
        say("no corpus: the index will return only ids, without texts, filters and BM25")
    if kind == "auto":
        kind = "exact" if len(source) * source.dim <= _FEW_VALUES else "hnsw"
        say(f"kind {kind} for {len(source)} vectors of {source.dim} dimensions")
    settings = build_settings(kind, source.dim, len(source))
    with finished_folder(root) as new:
        part = new / "000001"
        fields = write_documents(part, documents_of(folder, corpus))
        words = bm25 and corpus is not None
        entry = _segment(part, kind, settings, source, words=words, progress=progress)
        about: dict[str, Any] = {
            "format": FORMAT, "version": VERSION, "generation": 1,
            "model": (folder.manifest.get("model") or {}).get("name"), "space": folder.space,
            "dim": source.dim, "similarity": folder.similarity, "texts": corpus is not None,
            "fields": fields, "kind": kind, "params": settings, "search": {}, "measured": None,
            "bm25": words, "count": len(source), "efforts": {}, "segments": [entry],
        }  # fmt: skip
        if kind != "exact":
            about["measured"] = measured = calibrated(FolderIndex(new, about), made_queries(source))
            about["search"] = measured["search"]
        write_json(new / MANIFEST, about)
    return about


def _opened(vectors: VectorFolder | str | Path) -> VectorFolder:
    from mar_st.encode.folder import VectorFolder  # lazy: safetensors

    folder = vectors if isinstance(vectors, VectorFolder) else VectorFolder.open(vectors)
    if not len(folder):
        raise MarError(f"{folder.path} holds no vectors. Encode a corpus with documents.")
    folder.verify()  # damage would be copied
    return folder


def compared(folder: VectorFolder) -> Vectors:
    """Return the vectors of a folder as an index compares them."""
    return Vectors([folder], normalised=folder.similarity == "cosine" and not folder.normalised)


def encoded_corpus(folder: VectorFolder) -> str | None:
    """Return the corpus that was encoded, if it is still where it was; one of the Hub is."""
    path = folder.manifest["corpus"]["path"]
    there = isinstance(path, str) and (path.startswith((HUB, PACKAGE)) or os.path.exists(path))  # noqa: PTH110
    return path if there else None


def _segment(
    part: Path, kind: str, params: Mapping[str, Any], source: Vectors, *, words: bool, progress: bool
) -> dict[str, Any]:
    """Build a segment whose documents are written, and return its entry."""
    build_vectors(part, kind, params, source, progress=progress)
    if words:
        build_words(part, progress=progress)
    return {
        "name": part.name, "kind": kind, "count": len(source), "live": len(source), "deleted": None,
        "files": sizes(part),
    }  # fmt: skip


def add(
    index: str | Path,
    vectors: VectorFolder | str | Path,
    *,
    corpus: str | Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Add documents; one whose id is in the index is replaced.

    Args:
        index: Folder of the index.
        vectors: Folder of the vectors of the documents, by the same model.
        corpus: The documents; default the ones that were encoded.
        progress: Show progress bars.

    Returns:
        The new manifest.

    Raises:
        MarError: The vectors do not fit, or the corpus is missing.
    """
    folder = _opened(vectors)
    corpus = corpus if corpus is not None else encoded_corpus(folder)
    with _changing(index) as opened:
        opened.check_addition(folder, corpus)
        found = [segment.find(folder.ids.to_pylist()) for segment in opened.segments]
        return _change(opened, found, folder, corpus, progress=progress)


def delete(index: str | Path, ids: Iterable[str]) -> dict[str, Any]:
    """Delete documents.

    Args:
        index: Folder of the index.
        ids: Their ids.

    Returns:
        The new manifest.

    Raises:
        MarError: There are no ids, some are not in the index, or no document would be left.
    """
    names = list(dict.fromkeys(ids))
    with _changing(index) as opened:
        found = [segment.find(names) for segment in opened.segments]
        count = sum(map(len, found))
        if not names or count < len(names) or count == len(opened):
            raise MarError(
                f"{count} of {len(names)} named documents are in {index}, which holds "
                f"{len(opened)}. Nothing was deleted: name only ids of the index, and not all of them."
            )
        return _change(opened, found)


def purge(index: str | Path, ids: Iterable[str], *, dry_run: bool = False) -> int:
    """Remove documents with all their bytes, also such that were deleted before.

    The index is built again from the stored vectors and texts, with unchanged search settings, and the files
    from before are deleted, so whoever has it open must open it again. An index that is left without
    documents is deleted. An interrupted removal is finished by the same call.

    Args:
        index: Folder of the index.
        ids: Ids of the documents; those that are not in the index are ignored.
        dry_run: Change nothing.

    Returns:
        The number of documents, counting each stored copy.
    """
    names = list(ids)
    with _changing(index) as opened:
        count = sum(len(segment.documents.find(names)) for segment in opened.segments)
        if dry_run:
            return count
        found, about = [segment.find(names) for segment in opened.segments], opened.about
        if len(opened) == sum(map(len, found)):
            shutil.rmtree(opened.folder)
            return count
        if count:
            about = _change(opened, found, whole=True)
        named = {name for entry in about["segments"] for name in (entry["name"], entry["deleted"])}
        if count or any(path.name not in named for path in written(opened.folder)):
            publish(opened.folder, about, about)
    return count


@contextmanager
def _changing(index: str | Path) -> Iterator[FolderIndex]:
    """Open an index to change it; no other process can do so meanwhile."""
    root = Path(index)
    read_manifest(root)
    with locked(root):
        yield FolderIndex.connect(root)


def _change(
    opened: FolderIndex,
    deleted: Sequence[np.ndarray],
    folder: VectorFolder | None = None,
    corpus: str | Path | None = None,
    *,
    whole: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Mark rows as deleted, and write new documents and those of merged segments as a segment.

    The first segment is merged, too, if too much has changed, or if `whole`: that builds the index of all
    documents again, with unchanged search settings, and from the stored vectors.
    """
    root, about = opened.folder, opened.about
    alive = [segment.alive.copy() for segment in opened.segments]
    for one, rows in zip(alive, deleted, strict=True):
        one[rows] = False
    live, new = [int(one.sum()) for one in alive], 0 if folder is None else len(folder)
    size = opened.segments[0].count
    whole = whole or size - live[0] + sum(live[1:]) + new > _WORN_SHARE * size
    part = root / f"{about['generation'] + 1:06d}"
    entries, merged = [], list[tuple[Segment, np.ndarray]]()
    for number, (segment, one) in enumerate(zip(opened.segments, alive, strict=True)):
        if whole or (number and live[number] <= _MERGE_RATIO * new):
            merged.append((segment, np.flatnonzero(one)))
            continue
        entry = dict(segment.entry)
        if live[number] < entry["live"]:
            entry |= {"deleted": f"{part.name}-{entry['name']}.npy", "live": live[number]}
            np.save(root / entry["deleted"], np.flatnonzero(~one))
        entries.append(entry)
    if not whole and folder is None:
        return publish(root, about, {**about, "segments": entries})
    shutil.rmtree(part, ignore_errors=True)  # of a killed update
    earlier = (segment.documents[row] for segment, rows in merged for row in rows.tolist())
    added = () if folder is None else documents_of(folder, corpus)
    fields = write_documents(part, chain(earlier, added), opened.fields)
    sources = [Vectors([segment.index.vectors], rows) for segment, rows in merged]
    source = Vectors([*sources, *([] if folder is None else [compared(folder)])])
    kind = opened.kind if whole else "exact"
    params = build_settings(kind, source.dim, len(source))
    entry = _segment(part, kind, params, source, words=opened.has_words, progress=progress)
    changed = {"params": params} if whole else {}
    return publish(root, about, {**about, **changed, "fields": fields, "segments": [*entries, entry]})
