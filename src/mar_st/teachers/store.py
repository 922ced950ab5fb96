"""Teacher vectors on disk: computed once, memory-mapped, shared by recipes and runs.

A store is a folder. Below it, one folder per teacher and settings (named by a digest of both), and in that
one folder per shard, `NNNNNN-DIGEST`, with `vectors.npy` `(n, dim)` and `keys.npy`, the digests of the `n`
texts. A shard is written aside and moved into place when it is whole, so what can be seen is complete. Which
vector a text has does not depend on the run that asked: it is the one that came first. Its bytes depend on
the texts it was encoded with no more than by rounding (padding and the shapes of matrix products differ), and
once written they stay.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.files import move_folder, one_line, write_digests, write_text
from mar_st.files.arrays import load_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mar_st.recipes.schema import Side

logger = logging.getLogger(__name__)

#: Environment variable that names the folder of teacher vectors.
VECTORS_VARIABLE = "MAR_STORE"

#: Texts that are encoded between two writes; a kill loses these at most.
SHARD = 4096
#: Texts that are handed to the teacher at once.
BLOCK = 512
#: Bytes of a text's key (sha256, cut).
KEY = 16

#: Texts whose keys are made at once.
BLOCK_KEYS = 4096
#: Files that one array keeps open at most.
OPEN_FILES = 256

StoredType: TypeAlias = Literal["float32", "float16"]


class StoreError(MarError):
    """Vectors that cannot be stored or found; the message says which and what to do."""


class Encoder(Protocol):
    """Interface of a teacher, as far as the store uses it."""

    def identity(self, role: Side) -> dict[str, Any]:
        """Return, as JSON, everything the vectors of texts in this role depend on."""

    def encode(self, texts: Sequence[str], role: Side) -> np.ndarray:
        """Vectors of texts, `(len(texts), dim)` floats."""


def store_root(run: str | Path) -> Path:
    """Return the folder of vectors for a run: `$MAR_STORE`, else `teacher-store` beside the run folder."""
    named = os.environ.get(VECTORS_VARIABLE)
    return Path(named).expanduser() if named else Path(run).resolve().parent / "teacher-store"


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """Digests of texts, `(len(texts),)` of dtype `S16`."""
    rest, digests = iter(texts), bytearray()
    while block := list(itertools.islice(rest, BLOCK_KEYS)):
        digests += b"".join(hashlib.sha256(text.encode()).digest()[:KEY] for text in block)
    return np.frombuffer(bytes(digests), dtype=f"S{KEY}")


class KeyIndex:
    """Positions of keys in a long list of keys; of equal keys the first.

    Args:
        keys: Keys, `(n,)` of dtype `S16`.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self._sorted, self._first = np.unique(keys, return_index=True)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Position of each key, `(len(keys),)` int64; -1 where there is none."""
        if not len(self._sorted):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._first[places], -1)


@dataclass(frozen=True)
class Part:
    """An array in a file.

    Attributes:
        path: The file.
        dtype: Type of its elements; with `field` that of a record.
        shape: `(rows, width)`; with `field` `(rows,)`.
        offset: Bytes before the first element.
        field: Name of the vector's field in a record.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0
    field: str | None = None

    @classmethod
    def npy(cls, path: Path) -> Self:
        """The array of an `.npy` file.

        Raises:
            StoreError: Not a matrix of floats, row after row.
        """
        try:
            array: Any = load_array(path, mapped=True)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read as an array of vectors ({error}).") from error
        if array.ndim != 2 or array.dtype.kind != "f" or not array.flags.c_contiguous:
            raise StoreError(
                f"{path} holds {array.dtype} of shape {array.shape}; vectors are floats of shape (texts, "
                "dim), in C order. Save them with numpy.save(path, numpy.ascontiguousarray(vectors))."
            )
        return cls(Path(path), array.dtype, array.shape, int(array.offset))

    @property
    def width(self) -> int:
        """Width of its vectors."""
        return int(self.dtype[self.field].shape[0] if self.field else self.shape[1])

    def open(self) -> np.ndarray:
        """The vectors, `(rows, width)`, mapped into memory."""
        array: np.ndarray = np.memmap(
            self.path, dtype=self.dtype, mode="r", shape=self.shape, offset=self.offset
        )
        return array[self.field] if self.field else array


class Vectors:
    """Vectors in files, read row by row; nothing is loaded before it is asked for.

    Indexing with a number gives `(dim,)`, with a slice or a sequence of row numbers `(rows, dim)`, float32 in
    both cases. It can be pickled (for the workers of a data loader): it then carries names of files, no
    vectors.

    Args:
        parts: The files.
        places: Part and row of each vector, `(n, 2)` int64.
        width: Width of the vectors, where there are no parts.
        dim: Keep the first `dim` dimensions.
        normalised: Bring what is kept to length 1.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        places: np.ndarray,
        *,
        width: int | None = None,
        dim: int | None = None,
        normalised: bool = False,
    ) -> None:
        self.parts, self.places = tuple(parts), places
        self._width = parts[0].width if parts else int(width or 0)
        self.dim, self.normalised = dim or self._width, normalised
        if self.dim > self._width:
            raise StoreError(f"The vectors have {self._width} dimensions; {self.dim} of them cannot be kept.")
        self._open: dict[int, np.ndarray] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, dim)`."""
        return len(self.places), self.dim

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        places = self.places[rows]
        single = places.ndim == 1
        places = places[None] if single else places
        found = np.empty((len(places), self.dim), dtype=np.float32)
        for part in np.unique(places[:, 0]):
            here = np.flatnonzero(places[:, 0] == part)
            found[here] = self._part(int(part))[places[here, 1], : self.dim]
        if self.normalised:
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found[0] if single else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return self[:].astype(dtype or np.float32, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def blocks(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """All vectors in order, `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def select(self, rows: np.ndarray) -> Vectors:
        """Some of the vectors, by row number."""
        return Vectors(
            self.parts, self.places[rows], width=self._width, dim=self.dim, normalised=self.normalised
        )

    def cut(self, dim: int | None, *, normalised: bool = False) -> Vectors:
        """The same vectors, their first `dim` dimensions alone (`None`: all), maybe brought to length 1."""
        return Vectors(
            self.parts,
            self.places,
            width=self._width,
            dim=min(dim or self.dim, self.dim),
            normalised=normalised,
        )

    def _part(self, number: int) -> np.ndarray:
        if number not in self._open:
            if len(self._open) >= OPEN_FILES:
                del self._open[next(iter(self._open))]
            self._open[number] = self.parts[number].open()
        return self._open[number]


class TeacherStore:
    """A folder of teacher vectors, see the module's text.

    Several processes may ask at once, those of one launch or of different runs: a shard is computed by one of
    them, the others take the next shard and wait at the end.

    Args:
        root: The folder; made when the first vector is written.
        shard: Texts per shard.
        on_encode: Called with the number of texts and the seconds after texts were encoded.
    """

    def __init__(
        self, root: str | Path, *, shard: int = SHARD, on_encode: Callable[[int, float], None] | None = None
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
        """Vectors of texts, in their order; those that are missing are computed and written.

        They are encoded sorted by length, longest first, so that a batch holds texts of one length and a lack
        of memory shows at once. Killed and asked again, only shards that were not finished are computed, and
        they hold the same texts in the same order.

        Args:
            encoder: The teacher.
            texts: The texts; equal ones share a vector.
            role: Whether they are queries or documents.
            dtype: Type of the stored vectors (part of the teacher's folder). `float16` halves the disk space
                and rounds to about three digits.
            show_progress: Show a progress bar.

        Raises:
            StoreError: The teacher gives vectors that are not finite, or of another shape than before.
        """
        identity = encoder.identity(role)
        folder = self.folder(encoder, role) / dtype
        keys = text_keys(texts)
        parts, index = _shards(folder)
        plan = list(self._plan(texts, keys, index))
        if plan:
            folder.mkdir(parents=True, exist_ok=True)
            _write_json(folder.parent / "teacher.json", identity)
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
        """Shards to compute: name, row numbers of the texts and their keys."""
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
            for blocking in (False, True):  # first what nobody works on, then wait for the others
                busy = []
                for name, rows, keys in waiting:
                    try:
                        held = FileLock(locks / name).acquire(blocking=blocking)
                    except Timeout:
                        busy.append((name, rows, keys))
                        continue
                    with held:
                        if any(folder.glob(f"[0-9]*-{name}")):
                            bar.update(len(rows))  # another process was faster
                        else:
                            asked = [texts[row] for row in rows.tolist()]
                            _write_shard(folder, name, keys, _encode(encoder, asked, role, dtype, bar))
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
        asked = texts[start : start + BLOCK]
        block = np.asarray(encoder.encode(asked, role))
        if block.ndim != 2 or len(block) != len(asked):
            raise StoreError(
                f"The teacher gave an array of shape {block.shape} for {len(asked)} texts; one vector per "
                "text was expected."
            )
        block = block.astype(dtype)
        if not np.isfinite(block).all():
            raise StoreError(
                f"The teacher gave vectors with NaN or infinite values for {len(asked)} texts, stored as "
                f"{dtype}. Check its weights, or compute and store in float32."
            )
        blocks.append(block)
        bar.update(len(asked))
    return np.concatenate(blocks)


def _write_shard(folder: Path, name: str, keys: np.ndarray, vectors: np.ndarray) -> None:
    """Write a shard aside, give it the next number, move it into place."""
    part = folder / f"part-{name}"
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
    part.mkdir()
    np.save(part / "vectors.npy", vectors)
    np.save(part / "keys.npy", keys)
    write_digests(part)
    with FileLock(folder / "commit.lock"):
        shards = _shard_folders(folder)
        if shards and Part.npy(shards[0] / "vectors.npy").width != vectors.shape[1]:
            raise StoreError(
                f"The teacher gave {vectors.shape[1]} dimensions, but the vectors in {folder} have "
                f"{Part.npy(shards[0] / 'vectors.npy').width}. Its settings changed without its identity; "
                "delete the folder to compute them again."
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
    none = np.empty(0, dtype=f"S{KEY}")
    return [Part.npy(path / "vectors.npy") for path in shards], KeyIndex(np.concatenate([none, *keys]))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True), shared=True)
