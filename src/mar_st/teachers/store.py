"""Vectors and scores of teachers on disk: computed once, shared by recipes, runs and processes; or given.

A store holds one folder per teacher with its settings (named by a digest of both), and in that one folder of
vectors (`VectorFolder`) per shard of texts, moved into place when it is complete. The vector of
a text is the first one that was written, and never changes. The other texts that it was encoded with affect
it only by rounding.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from mar_st.encode.folder import VectorFolder, text_digests, write_vectors
from mar_st.encode.vectors import Vectors
from mar_st.errors import MarError
from mar_st.files import finished_folder, sha256, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mar_st.recipes.schema import Side


#: Type of a text's key: the first 16 bytes of its sha256, as folders of vectors keep it.
KEY = np.dtype("S16")


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """Return the keys of texts, `(len(texts),)` of type `S16`."""
    return np.frombuffer(b"".join(text_digests(texts)), dtype=KEY)


class KeyIndex:
    """Places of texts in folders of vectors, counted over all of them; for equal texts, the first place.

    Args:
        folders: The folders, in order.
    """

    def __init__(self, folders: Sequence[VectorFolder]) -> None:
        chunks = [chunk for folder in folders for chunk in folder.text_digests.chunks]
        parts = [
            np.frombuffer(chunk.buffers()[1], KEY)[chunk.offset : chunk.offset + len(chunk)]
            for chunk in chunks
        ]
        keys = np.concatenate([np.empty(0, KEY), *parts])
        self._sorted, self._first = np.unique(keys, return_index=True)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the place of each key, `(len(keys),)` int64; -1 if there is none."""
        if not len(self._sorted):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._first[places], -1)


class FolderTeacher:
    """A folder of vectors, read in place; it knows its texts by their digests.

    `mar encode` writes one; `mar_st.encode.folder.write_vectors` makes one of vectors from another source.

    Attributes:
        space: The document space of the vectors, if the folder names it.

    Args:
        path: The folder.

    Raises:
        MarError: The folder holds no vectors, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.folder = VectorFolder.open(path)
        self.folder.verify()  # after training, damage could not be traced
        self.space = self.folder.space
        self._index = KeyIndex([self.folder])

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digest of the manifest, which has the digest of every file."""
        del role
        return {"kind": "folder", "vectors": sha256(self.folder.path / "manifest.json")}

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return the vectors of texts that the folder has.

        Raises:
            MarError: Some texts have no vector.
        """
        rows = self._index.find(text_keys(texts))
        missing = int((rows < 0).sum())
        if missing:
            which = "queries" if role == "query" else "texts"
            raise MarError(
                f"{missing} of {len(texts)} {which} have no vector in {self.folder.path}, which has "
                f"{len(self.folder)} vectors. Encode the same texts (title, line break, text) with the same "
                "model, or leave them out; a folder of vectors cannot encode."
            )
        return Vectors([self.folder], rows)


def is_vector_folder(path: Path) -> bool:
    """Return True if a folder holds vectors, finished or not, and no model."""
    return (path / "shards").is_dir()


#: Environment variable that names the folder of teacher vectors.
VECTORS_VARIABLE = "MAR_STORE"

#: Texts that are encoded between two writes; a kill loses at most these.
SHARD_TEXTS = 4096
#: Texts per call of the teacher.
BLOCK = 512


class Encoder(Protocol):
    """Interface of a teacher, as far as the store uses it."""

    def identity(self, role: Side) -> dict[str, Any]:
        """Return, as JSON, everything the vectors of texts in this role depend on."""

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Return vectors of texts, `(len(texts), dim)` floats."""


def store_root(run: str | Path) -> Path:
    """Return the folder of vectors for a run: `$MAR_STORE`, else `teacher-store` beside the run folder."""
    named = os.environ.get(VECTORS_VARIABLE)
    return Path(named).expanduser() if named else Path(run).resolve().parent / "teacher-store"


class TeacherStore:
    """A folder of teacher vectors.

    Several processes may ask at once, those of one launch or of different runs: a shard is computed by one of
    them, the others take the next shard and wait at the end.

    Args:
        root: The folder; created when the first vector is written.
        shard: Texts per shard.
    """

    def __init__(self, root: str | Path, *, shard: int = SHARD_TEXTS) -> None:
        self.root, self.shard = Path(root), shard

    def folder(self, encoder: Encoder, role: Side) -> Path:
        """Return the folder of the vectors of one teacher with its settings."""
        content = json.dumps(encoder.identity(role), sort_keys=True, ensure_ascii=False)
        return self.root / hashlib.sha256(content.encode()).hexdigest()[:32]

    def vectors(self, encoder: Encoder, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts, in their order; missing ones are computed and written.

        They are encoded sorted by length, longest first, so that a batch holds texts of one length and a lack
        of memory shows at once. If the process is killed, the next call computes only unfinished shards, with
        the same texts in the same order.

        Args:
            encoder: The teacher.
            texts: The texts; equal ones share a vector.
            role: Whether they are queries or documents.

        Raises:
            MarError: The teacher returns vectors that are not finite, or of another shape than before.
        """
        folder, keys = self.folder(encoder, role), text_keys(texts)
        stored, index = _stored(folder)
        plan = list(self._plan(texts, keys, index))
        if plan:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "teacher.json", encoder.identity(role), sort_keys=True)
            self._compute(encoder, texts, role, folder, plan)
            stored, index = _stored(folder)
        return Vectors(stored, index.find(keys))

    def _plan(
        self, texts: Sequence[str], keys: np.ndarray, index: KeyIndex
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the shards to compute: name, and row numbers of the texts."""
        missing = np.flatnonzero(index.find(keys) < 0)
        if not len(missing):
            return
        missing = missing[np.unique(keys[missing], return_index=True)[1]]
        lengths = np.fromiter((len(text) for text in texts), dtype=np.int32, count=len(texts))[missing]
        order = missing[np.lexsort((keys[missing], -lengths))]
        for start in range(0, len(order), self.shard):
            rows = order[start : start + self.shard]
            yield hashlib.sha256(keys[rows].tobytes()).hexdigest()[:16], rows

    def _compute(
        self,
        encoder: Encoder,
        texts: Sequence[str],
        role: Side,
        folder: Path,
        plan: list[tuple[str, np.ndarray]],
    ) -> None:
        total = sum(len(rows) for _, rows in plan)
        with tqdm(total=total, desc="teacher vectors", unit="texts", disable=None) as bar:
            waiting = plan
            for blocking in (False, True):  # first the shards that no process has locked
                busy = []
                for name, rows in waiting:
                    try:
                        lock = FileLock(folder / f"{name}.lock").acquire(blocking=blocking)
                    except Timeout:
                        busy.append((name, rows))
                        continue
                    with lock:
                        if not (folder / name).is_dir():
                            _write(folder / name, encoder, [texts[row] for row in rows.tolist()], role, bar)
                waiting = busy


def _write(path: Path, encoder: Encoder, texts: list[str], role: Side, bar: tqdm[Any]) -> None:
    """Compute and write a shard."""
    known, blocks = _stored(path.parent)[0][:1], []
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        vectors = np.asarray(encoder.encode(block, role), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(block):
            raise MarError(f"The teacher gave an array of shape {vectors.shape} for {len(block)} texts.")
        if known and vectors.shape[1] != known[0].dim:
            raise MarError(
                f"The teacher gave vectors of {vectors.shape[1]} dimensions, those in {path.parent} have "
                f"{known[0].dim}: it has changed. Delete that folder to compute all again."
            )
        blocks.append(vectors)
        bar.update(len(block))
    with finished_folder(path) as part:
        names = [key.hex() for key in text_keys(texts).tolist()]
        write_vectors(part, names, np.concatenate(blocks), texts=texts)


def _stored(folder: Path) -> tuple[list[VectorFolder], KeyIndex]:
    """Return the shards of a teacher, in a fixed order, and the places of their texts."""
    shards = [VectorFolder.open(path) for path in sorted(folder.glob("[0-9a-f]*")) if path.is_dir()]
    return shards, KeyIndex(shards)
