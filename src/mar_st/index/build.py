"""Building an index from a folder of vectors and its corpus, and changing it without a new build.

Added documents become a segment that is compared exactly, small ones are merged. Deleted documents are marked
and no longer found. `compact` builds one segment of what is left.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.files import counted, finished_folder, locked, write_json
from mar_st.index.base import MILVUS_PREFIX
from mar_st.index.documents import Documents, documents_of, write_documents
from mar_st.index.folder import (
    FORMAT,
    MANIFEST,
    VERSION,
    FolderIndex,
    Segment,
    publish,
    read_manifest,
    sizes,
)
from mar_st.index.tune import RECALL, calibrate, exact_rows, made_queries
from mar_st.index.vectors import (
    LADDERS,
    VectorIndex,
    Vectors,
    build_settings,
    build_vectors,
)
from mar_st.index.words import build_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mar_st.encode import VectorFolder

#: Values in all vectors up to which exact search answers within some milliseconds.
_FEW_VALUES = 100_000_000

#: Added segments of at most this many times the documents of an addition are merged into it.
_MERGE_RATIO = 2

#: Share of deleted and added documents above which an index should be compacted.
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
        kind: `exact`, `hnsw`, `ivf-pq`, `int8`; `auto`: `exact` for few vectors, `hnsw` for many.
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
        write_documents(part, documents_of(folder, corpus))
        entry, words = _segment(
            part, kind, settings, source, words=bm25 and corpus is not None, progress=progress
        )
        about = {
            "format": FORMAT, "version": VERSION, "generation": 1,
            "model": (folder.manifest.get("model") or {}).get("name"), "space": folder.space,
            "dim": source.dim, "similarity": folder.similarity, "texts": corpus is not None,
            "fields": Documents(part).types, "kind": kind, "params": settings,
            "bm25": words, "count": len(source), "efforts": {}, "segments": [entry],
        }  # fmt: skip
        about |= _tuned(part, kind, source)
        write_json(new / MANIFEST, about)
    return about


def _tuned(part: Path, kind: str, source: Vectors) -> dict[str, Any]:
    """Return the search settings of a new index, and the recall that was measured with them."""
    if kind == "exact":
        return {"search": {}, "measured": None}
    queries = made_queries(source)
    search = VectorIndex(part, kind, len(source), source.dim).search
    measured = calibrate(search, queries, exact_rows(source, queries), RECALL, LADDERS[kind])
    return {"search": measured.pop("search"), "measured": measured}


def _opened(vectors: VectorFolder | str | Path) -> VectorFolder:
    from mar_st.encode import VectorFolder  # lazy: safetensors

    folder = vectors if isinstance(vectors, VectorFolder) else VectorFolder.open(vectors)
    if not len(folder):
        raise MarError(f"{folder.path} holds no vectors. Encode a corpus with documents.")
    folder.verify()  # damage would be copied
    return folder


def compared(folder: VectorFolder) -> Vectors:
    """Return the vectors of a folder as an index compares them."""
    # Vectors of length 1 that are stored in eight bits or one bit no longer have length exactly 1.
    whole = folder.normalised and folder.dtype in ("float32", "float16")
    return Vectors([(folder, None)], normalise=folder.similarity == "cosine" and not whole)


def encoded_corpus(folder: VectorFolder) -> str | None:
    """Return the corpus that was encoded, if it is still where it was."""
    path = folder.manifest["corpus"]["path"]
    return path if isinstance(path, str) and os.path.exists(path) else None  # noqa: PTH110


def _segment(
    part: Path,
    kind: str,
    params: Mapping[str, Any],
    source: Vectors,
    *,
    words: bool,
    mean_length: float | None = None,
    progress: bool,
) -> tuple[dict[str, Any], dict[str, float] | None]:
    """Build a segment whose documents are written; return its entry and the statistics of BM25."""
    build_vectors(part, kind, params, source, progress=progress)
    mean = build_words(part, mean_length=mean_length, progress=progress) if words else None
    entry = {
        "name": part.name, "kind": kind, "count": len(source), "live": len(source), "deleted": None,
        "files": sizes(part),
    }  # fmt: skip
    return entry, None if mean is None else {"mean_length": mean}


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
                f"{counted(count, 'document')} of {len(names)} named ones are in {index}, which holds "
                f"{len(opened)}. Nothing was deleted: name only ids of the index, and not all of them."
            )
        return _change(opened, found, None, None, progress=False)


@contextmanager
def _changing(index: str | Path) -> Iterator[FolderIndex]:
    """Open an index to change it; no other process can do so meanwhile."""
    root = Path(index)
    read_manifest(root)
    with locked(root, MarError):
        yield FolderIndex.connect(root)


def compact(index: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Build one segment of the remaining documents, of the same kind, with unchanged search settings.

    Kinds that store float16 vectors are built from those.

    Args:
        index: Folder of the index.
        progress: Show progress bars.

    Returns:
        The new manifest.
    """
    with _changing(index) as opened:
        root, about = opened.folder, opened.about
        live = [(segment, np.flatnonzero(segment.alive)) for segment in opened.segments]
        source = Vectors([(segment.index.vectors, rows) for segment, rows in live])
        part = _new_segment(root, about)
        write_documents(
            part, (one.documents[row] for one, rows in live for row in rows.tolist()), opened.fields
        )
        settings = build_settings(opened.kind, source.dim, len(source))
        entry, words = _segment(
            part, opened.kind, settings, source, words=opened.has_words, progress=progress
        )
        new = {**about, "params": settings, "bm25": words, "segments": [entry]}
        return publish(root, about, new)


def worn(manifest: Mapping[str, Any]) -> bool:
    """Return True if so many documents were added or deleted that the index should be compacted."""
    first, *others = manifest["segments"]
    dead = sum(segment["count"] - segment["live"] for segment in manifest["segments"])
    return bool(dead + sum(segment["live"] for segment in others) > _WORN_SHARE * first["count"])


def _change(
    opened: FolderIndex,
    deleted: Sequence[np.ndarray],
    folder: VectorFolder | None,
    corpus: str | Path | None,
    *,
    progress: bool,
) -> dict[str, Any]:
    """Mark rows as deleted, and add a segment, in one new manifest."""
    root, about = opened.folder, opened.about
    part = _new_segment(root, about)
    entries, merged = [], list[tuple[Segment, np.ndarray]]()
    for number, (segment, rows) in enumerate(zip(opened.segments, deleted, strict=True)):
        alive = segment.alive.copy()
        alive[rows] = False
        live = int(alive.sum())
        entry = dict(segment.entry)
        if not live:
            continue
        if folder is not None and number and live <= _MERGE_RATIO * len(folder):
            merged.append((segment, np.flatnonzero(alive)))
            continue
        if len(rows):
            entry |= {"deleted": f"{part.name}-{entry['name']}.npy", "live": live}
            np.save(root / entry["deleted"], np.flatnonzero(~alive))
        entries.append(entry)
    if folder is None:
        part.rmdir()
        return publish(root, about, {**about, "segments": entries})
    earlier = (segment.documents[row] for segment, rows in merged for row in rows.tolist())
    write_documents(part, chain(earlier, documents_of(folder, corpus)), opened.fields)
    parts = [(segment.index.vectors, rows) for segment, rows in merged]
    source = Vectors([*parts, (compared(folder), None)])
    mean = about["bm25"]["mean_length"] if opened.has_words else None
    entry, _ = _segment(
        part, "exact", {}, source, words=opened.has_words, mean_length=mean, progress=progress
    )
    fields = {**Documents(part).types, **opened.fields}
    return publish(root, about, {**about, "fields": fields, "segments": [*entries, entry]})


def _new_segment(root: Path, manifest: Mapping[str, Any]) -> Path:
    """Create the folder of the next generation's segment, without leftovers of a killed update."""
    part = root / f"{manifest['generation'] + 1:06d}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    return part
