"""Vectors that any model encoded earlier, as the teacher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.encode.folder import VectorFolder, text_digests
from mar_st.encode.vectors import Vectors
from mar_st.errors import MarError
from mar_st.files import sha256

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
