"""Vectors that any model encoded earlier, as the teacher."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mar_st.encode.folder import VectorFolder, shard_files
from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.teachers.vectors import KeyIndex, Part, Vectors, text_keys
from mar_st.text.texts import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Side

#: Distance between two vectors of one text that rounding can cause, as a share of their length: a model that
#: computes in bfloat16 encodes a text slightly differently in another batch.
MAX_NOISE = 0.05
#: Repeated texts that are compared at a time.
BLOCK = 8192
#: Types of a safetensors file that numpy can read.
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class TeacherFolderError(MarError):
    """A folder of vectors that does not fit; the message says why."""


class FolderTeacher:
    """Vectors in files and the texts of their rows; the files are read in place, without a copy.

    The folder is one of `mar encode` (float32 or float16), whose ids are in `corpus`; or it has `vectors.npy`
    (or `vectors.safetensors`) and `texts.jsonl`, whose lines hold `text` (and maybe `title`, which is joined
    to it as everywhere), or an `_id` that is in `corpus`.

    Attributes:
        texts: The text of each vector.
        by_id: Whether some rows have an id instead of a text.
        space: The document space of the vectors, if the folder names it.

    Args:
        folder: The folder.
        corpus: Text of each id, for rows without a text.

    Raises:
        TeacherFolderError: A file is missing, the counts differ, an id is unknown, or a text has two
            different vectors.
    """

    def __init__(self, folder: Path, corpus: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.space: str | None = None
        self._encoded = _encoded(folder)
        if self._encoded is not None:
            self.parts, self.space = _shards(self._encoded), self._encoded.space
            ids = self._encoded.ids.to_pylist()
            rows: Iterable[tuple[str, str | None, str]] = ((str(folder), None, name) for name in ids)
        else:
            self.parts = [_find(folder)]
            path = folder / "texts.jsonl"
            rows = ((f"{path}:{number}", row.text, str(row.id)) for number, row in read_rows(path))
        self.texts: list[str] = []
        self.by_id = False
        for where, text, name in rows:
            if text is None and name not in (corpus or {}):
                raise TeacherFolderError(
                    f"{where}: has no 'text', and its _id {name!r} is not in the corpus. Give the corpus "
                    "that contains this id with --texts."
                )
            self.by_id |= text is None
            self.texts.append(text if text is not None else (corpus or {})[name])
        count = sum(part.shape[0] for part in self.parts)
        if len(self.texts) != count:
            raise TeacherFolderError(
                f"{self.parts[0].path} holds {count} vectors, but texts.jsonl {len(self.texts)} lines; they "
                "must belong to each other line by line."
            )
        keys = text_keys(self.texts)
        self._index = KeyIndex(keys)
        self._ends = np.cumsum([part.shape[0] for part in self.parts])
        self._digest: str | None = None
        self._check_repeated(keys)

    def identity(self, role: Side) -> dict[str, Any]:
        """Return the digests of the vectors' files and of the texts."""
        del role
        if self._digest is None:
            if self._encoded is not None:  # the manifest has the digest of every file
                content = json.dumps(self._encoded.manifest, sort_keys=True)
                self._digest = hashlib.sha256(content.encode()).hexdigest()
            else:
                with self.parts[0].path.open("rb") as file:
                    self._digest = hashlib.file_digest(file, "sha256").hexdigest()
        texts = hashlib.sha256(text_keys(self.texts).tobytes()).hexdigest()
        return {"kind": "folder", "vectors": self._digest, "texts": texts}

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return the vectors of texts that the folder has.

        Raises:
            TeacherFolderError: Some texts have no vector.
        """
        rows = self._index.find(text_keys(texts))
        missing = int((rows < 0).sum())
        if missing:
            which = "queries" if role == "query" else "texts"
            raise TeacherFolderError(
                f"{missing} of {len(texts)} {which} have no vector in {self.folder}. Encode them with the "
                "same model and add them to the folder, or leave them out; a folder of vectors cannot "
                "encode."
            )
        return self._at(rows)

    def _at(self, rows: np.ndarray) -> Vectors:
        part = np.searchsorted(self._ends, rows, side="right")
        starts = np.concatenate([[0], self._ends]).astype(np.int64)
        return Vectors(self.parts, np.stack([part, rows - starts[part]], axis=1).astype(np.int64))

    def _check_repeated(self, keys: np.ndarray) -> None:
        """Compare the vectors of each repeated text with its first one."""
        first = self._index.find(keys)
        repeats = np.flatnonzero(first != np.arange(len(first)))
        for start in range(0, len(repeats), BLOCK):
            rows = repeats[start : start + BLOCK]
            ours, others = self._at(rows)[:], self._at(first[rows])[:]
            with np.errstate(over="ignore"):
                apart = np.linalg.norm(ours - others, axis=1)
                different = np.flatnonzero(apart > MAX_NOISE * np.linalg.norm(others, axis=1))
            if len(different):
                row = rows[different[0]]
                raise TeacherFolderError(
                    f"{self.folder} holds a text twice with different vectors: rows {first[row] + 1} and "
                    f"{row + 1}, {self.texts[row][:40]!r}. Which one is right is unknown; delete the wrong "
                    "row, or write the folder again."
                )


def is_vector_folder(folder: Path) -> bool:
    """Return True if a folder holds vectors and no model."""
    return any((folder / name).is_file() for name in _VECTOR_FILES) or _encoded(folder) is not None


_VECTOR_FILES = ("vectors.npy", "vectors.safetensors")


def _encoded(folder: Path) -> VectorFolder | None:
    """Open a folder of `mar encode`; `None` for any other folder."""
    if not (folder / "shards").is_dir() or any((folder / name).is_file() for name in _VECTOR_FILES):
        return None
    return VectorFolder.open(folder)


def _shards(folder: VectorFolder) -> list[Part]:
    if folder.dtype not in ("float32", "float16"):
        raise TeacherFolderError(
            f"{folder.path} holds {folder.dtype} vectors, which are too imprecise to be learnt. Encode with "
            "--precision float16 or float32."
        )
    folder.verify()  # after training, damage could not be traced
    count = len(folder.manifest["shards"])
    return [_safetensors(shard_files(folder.path, number)[0]) for number in range(count)]


def _find(folder: Path) -> Part:
    if (folder / "vectors.npy").is_file():
        return Part.npy(folder / "vectors.npy")
    if (folder / "vectors.safetensors").is_file():
        return _safetensors(folder / "vectors.safetensors")
    raise TeacherFolderError(
        f"{folder} is neither a model nor a folder of vectors: it needs vectors.npy (or "
        "vectors.safetensors) and texts.jsonl, or what 'mar encode' writes."
    )


def _safetensors(path: Path) -> Part:
    """Return the only matrix of a safetensors file, without loading it."""
    try:
        with safe_open(path, framework="numpy"):  # checks the header and the size of the file
            pass
    except SafetensorError as error:
        raise TeacherFolderError(
            f"{path} is damaged or is not a safetensors file ({one_line(error)}). Write or copy it again."
        ) from error
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if len(tensors) != 1:
        raise TeacherFolderError(
            f"{path} holds {len(tensors)} tensors ({', '.join(tensors)}); one matrix is expected."
        )
    ((name, entry),) = tensors.items()
    if entry["dtype"] not in _DTYPES or len(entry["shape"]) != 2:
        raise TeacherFolderError(
            f"{path}: {name!r} is {entry['dtype']} of shape {tuple(entry['shape'])}; expected is a matrix of "
            f"{', '.join(_DTYPES)}."
        )
    start = 8 + size + int(entry["data_offsets"][0])
    return Part(path, np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), start)
