"""Vectors that were encoded before, by whatever model, as the teacher."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.store import KeyIndex, Part, Vectors, text_keys
from mar_st.texts import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mar_st.schema import Side

#: Types of a safetensors file that numpy can read.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class FolderError(MarError):
    """A folder of vectors that does not fit; the message says what is missing."""


class FolderTeacher:
    """A folder with `vectors.npy` (or `vectors.safetensors`) and the texts of its rows in `texts.jsonl`.

    A line of `texts.jsonl` holds `text` (and maybe `title`, which is joined to it as everywhere), or an `_id`
    that `corpus` knows. The vectors are read where they lie; nothing is copied or changed.

    Attributes:
        texts: The text of each vector.
        by_id: Whether ids stand for texts.

    Args:
        folder: The folder.
        corpus: Text of each id, for lines without a text.

    Raises:
        FolderError: A file is missing, the counts differ, or an id is unknown.
    """

    def __init__(self, folder: Path, corpus: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.part = _find(folder)
        self.texts: list[str] = []
        self.by_id = False
        for number, row in read_rows(folder / "texts.jsonl"):
            if row.text is None and row.id not in (corpus or {}):
                raise FolderError(
                    f"{folder / 'texts.jsonl'}:{number}: has no 'text', and its _id {row.id!r} is in no "
                    "corpus. Give the texts in this file, or the corpus with these ids by --texts."
                )
            self.by_id |= row.text is None
            self.texts.append(row.text if row.text is not None else (corpus or {})[str(row.id)])
        if len(self.texts) != self.part.shape[0]:
            raise FolderError(
                f"{self.part.path} holds {self.part.shape[0]} vectors, but texts.jsonl {len(self.texts)} "
                "lines; they must belong to each other line by line."
            )
        self._index = KeyIndex(text_keys(self.texts))
        self._digest: str | None = None

    def identity(self, role: Side) -> dict[str, Any]:
        """Digests of the vectors' file and of the texts."""
        del role
        if self._digest is None:
            with self.part.path.open("rb") as file:
                self._digest = hashlib.file_digest(file, "sha256").hexdigest()
        texts = hashlib.sha256(text_keys(self.texts).tobytes()).hexdigest()
        return {"kind": "folder", "vectors": self._digest, "texts": texts}

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Vectors of texts that the folder has.

        Raises:
            FolderError: Some are not there.
        """
        rows = self._index.find(text_keys(texts))
        missing = int((rows < 0).sum())
        if missing:
            which = "queries" if role == "query" else "texts"
            raise FolderError(
                f"{missing} of {len(texts)} {which} have no vector in {self.folder}. Encode them with the "
                "same model and add them to the folder, or leave them out; a folder of vectors cannot "
                "encode."
            )
        return Vectors([self.part], np.stack([np.zeros_like(rows), rows], axis=1))


def _find(folder: Path) -> Part:
    if (folder / "vectors.npy").is_file():
        return Part.npy(folder / "vectors.npy")
    if (folder / "vectors.safetensors").is_file():
        return _safetensors(folder / "vectors.safetensors")
    raise FolderError(
        f"{folder} is neither a model nor a folder of vectors: it needs vectors.npy (or "
        "vectors.safetensors) and texts.jsonl."
    )


def _safetensors(path: Path) -> Part:
    """The one matrix of a safetensors file, without loading it."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if len(tensors) != 1:
        raise FolderError(
            f"{path} holds {len(tensors)} tensors ({', '.join(tensors)}); one matrix is expected."
        )
    ((name, entry),) = tensors.items()
    if entry["dtype"] not in _TYPES or len(entry["shape"]) != 2:
        raise FolderError(
            f"{path}: {name!r} is {entry['dtype']} of shape {tuple(entry['shape'])}; expected is a matrix of "
            f"{', '.join(_TYPES)}."
        )
    start = 8 + size + int(entry["data_offsets"][0])
    return Part(path, np.dtype(_TYPES[entry["dtype"]]), tuple(entry["shape"]), start)
