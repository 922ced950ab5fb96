"""Teacher vectors on disk: computed once, memory-mapped, shared by recipes and runs.

A store is a folder. It has one folder per teacher and settings (named by a digest of both), and in that one
folder per shard, `NNNNNN-DIGEST`, with `vectors.npy` `(n, dim)` and `keys.npy`, the digests of the `n` texts.
A shard is written aside and moved into place when it is whole, so visible shards are complete. The vector of
a text does not depend on the run that asks: it is the first one that was written, and it never changes. The
other texts that it was encoded with affect it only by rounding (padding and the shapes of matrix products
differ).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from mar_st.files import move_folder, one_line, write_digests, write_json
from mar_st.files.arrays import load_array
from mar_st.teachers.vectors import KEY_BYTES, KeyIndex, Part, StoreError, Vectors, text_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mar_st.recipes.schema import Side

logger = logging.getLogger(__name__)

#: Environment variable that names the folder of teacher vectors.
VECTORS_VARIABLE = "MAR_STORE"

#: Texts that are encoded between two writes; a kill loses at most these.
SHARD_TEXTS = 4096
#: Texts per call of the teacher.
BLOCK = 512

StoredType: TypeAlias = Literal["float32", "float16"]


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
    """A folder of teacher vectors, see the module's text.

    Several processes may ask at once, those of one launch or of different runs: a shard is computed by one of
    them, the others take the next shard and wait at the end.

    Args:
        root: The folder; created when the first vector is written.
        shard: Texts per shard.
        on_encode: Called after texts were encoded, with their number and the seconds that it took.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        shard: int = SHARD_TEXTS,
        on_encode: Callable[[int, float], None] | None = None,
    ) -> None:
        self.root, self.shard, self.on_encode = Path(root), shard, on_encode

    def folder(self, encoder: Encoder, role: Side) -> Path:
        """Return the folder of the vectors of one teacher with its settings."""
        content = json.dumps(encoder.identity(role), sort_keys=True, ensure_ascii=False)
        return self.root / hashlib.sha256(content.encode()).hexdigest()[:32]

    def vectors(
        self,
        encoder: Encoder,
        texts: Sequence[str],
        role: Side,
        *,
        dtype: StoredType = "float32",
        show_progress: bool = True,
    ) -> Vectors:
        """Return vectors of texts, in their order; missing ones are computed and written.

        They are encoded sorted by length, longest first, so that a batch holds texts of one length and a lack
        of memory shows at once. If the process is killed, the next call computes only unfinished shards, with
        the same texts in the same order.

        Args:
            encoder: The teacher.
            texts: The texts; equal ones share a vector.
            role: Whether they are queries or documents.
            dtype: Type of the stored vectors (part of the teacher's folder). `float16` halves the disk space
                and rounds to about three digits.
            show_progress: Show a progress bar.

        Raises:
            StoreError: The teacher returns vectors that are not finite, or of another shape than before.
        """
        identity = encoder.identity(role)
        folder = self.folder(encoder, role) / dtype
        keys = text_keys(texts)
        parts, index = _shards(folder)
        plan = list(self._plan(texts, keys, index))
        if plan:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder.parent / "teacher.json", identity, sort_keys=True)
            self._compute(encoder, texts, role, folder, plan, np.dtype(dtype), show_progress=show_progress)
            parts, index = _shards(folder)
        flat = index.find(keys)
        ends = np.cumsum([part.shape[0] for part in parts])
        part = np.searchsorted(ends, flat, side="right")
        starts = np.concatenate([[0], ends]).astype(np.int64)
        places = np.stack([part, flat - starts[part]], axis=1).astype(np.int64)
        return Vectors(parts, places)

    def _plan(
        self, texts: Sequence[str], keys: np.ndarray, index: KeyIndex
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield the shards to compute: name, row numbers of the texts and their keys."""
        missing = np.flatnonzero(index.find(keys) < 0)
        if not len(missing):
            return
        missing = missing[np.unique(keys[missing], return_index=True)[1]]
        lengths = np.fromiter((len(text) for text in texts), dtype=np.int32, count=len(texts))[missing]
        order = missing[np.lexsort((keys[missing], -lengths))]
        for start in range(0, len(order), self.shard):
            rows = order[start : start + self.shard]
            yield hashlib.sha256(keys[rows].tobytes()).hexdigest()[:16], rows, keys[rows]

    def _compute(
        self,
        encoder: Encoder,
        texts: Sequence[str],
        role: Side,
        folder: Path,
        plan: list[tuple[str, np.ndarray, np.ndarray]],
        dtype: np.dtype[Any],
        *,
        show_progress: bool,
    ) -> None:
        locks = folder / "locks"
        locks.mkdir(exist_ok=True)
        started = time.perf_counter()
        with tqdm(
            total=sum(len(rows) for _, rows, _ in plan),
            desc="teacher vectors", unit="texts", disable=not show_progress,
        ) as bar:  # fmt: skip
            waiting = plan
            for blocking in (False, True):  # first the parts that no process has locked
                busy = []
                for name, rows, keys in waiting:
                    try:
                        lock = FileLock(locks / name).acquire(blocking=blocking)
                    except Timeout:
                        busy.append((name, rows, keys))
                        continue
                    with lock:
                        if any(folder.glob(f"[0-9]*-{name}")):
                            bar.update(len(rows))  # another process was faster
                        else:
                            shard_texts = [texts[row] for row in rows.tolist()]
                            _write_shard(folder, name, keys, _encode(encoder, shard_texts, role, dtype, bar))
                waiting = busy
        texts_encoded, seconds = sum(len(rows) for _, rows, _ in plan), time.perf_counter() - started
        logger.info("%d texts encoded by the teacher in %.2f s", texts_encoded, seconds)
        if self.on_encode is not None:
            self.on_encode(texts_encoded, seconds)


def _encode(
    encoder: Encoder, texts: list[str], role: Side, dtype: np.dtype[Any], bar: tqdm[Any]
) -> np.ndarray:
    blocks = []
    for start in range(0, len(texts), BLOCK):
        block_texts = texts[start : start + BLOCK]
        block = np.asarray(encoder.encode(block_texts, role))
        if block.ndim != 2 or len(block) != len(block_texts):
            raise StoreError(
                f"The teacher gave an array of shape {block.shape} for {len(block_texts)} texts; one vector "
                "per text was expected."
            )
        block = block.astype(dtype)
        if not np.isfinite(block).all():
            raise StoreError(
                f"The teacher gave vectors with NaN or infinite values for {len(block_texts)} texts, stored "
                f"as {dtype}. Check its weights, or compute and store in float32."
            )
        blocks.append(block)
        bar.update(len(block_texts))
    return np.concatenate(blocks)


def _write_shard(folder: Path, name: str, keys: np.ndarray, vectors: np.ndarray) -> None:
    """Write a shard aside, give it the next number, move it into place."""
    part = folder / f"part-{name}"
    shutil.rmtree(part, ignore_errors=True)  # left over from a killed process
    part.mkdir()
    np.save(part / "vectors.npy", vectors)
    np.save(part / "keys.npy", keys)
    write_digests(part)
    with FileLock(folder / "commit.lock"):
        shards = _shard_folders(folder)
        if shards and Part.npy(shards[0] / "vectors.npy").width != vectors.shape[1]:
            raise StoreError(
                f"The teacher gave {vectors.shape[1]} dimensions, but the vectors in {folder} have "
                f"{Part.npy(shards[0] / 'vectors.npy').width}. Its settings have changed, but its identity "
                "has not; delete the folder to compute them again."
            )
        number = int(shards[-1].name.partition("-")[0]) + 1 if shards else 0
        move_folder(part, folder / f"{number:06d}-{name}")


def _shard_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*-*") if path.is_dir())


def _keys(path: Path) -> np.ndarray:
    try:
        return load_array(path)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} cannot be read ({one_line(error)}). 'mar verify --repair' on the store deletes its "
            "shard, so that it is computed again."
        ) from error


def _shards(folder: Path) -> tuple[list[Part], KeyIndex]:
    shards = _shard_folders(folder)
    keys = [_keys(path / "keys.npy") for path in shards]
    none = np.empty(0, dtype=f"S{KEY_BYTES}")
    return [Part.npy(path / "vectors.npy") for path in shards], KeyIndex(np.concatenate([none, *keys]))
