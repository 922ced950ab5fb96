"""Vectors that any model encoded earlier, as the teacher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.encode import VectorFolder
from mar_st.encode.vectors import Vectors
from mar_st.errors import MarError
from mar_st.files import sha256
from mar_st.teachers.keys import KeyIndex, folder_keys, text_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Side


class FolderTeacher:
    """A folder of vectors, read in place; it knows its texts by their digests.

    `mar encode` writes such a folder; `mar_st.encode.write_vectors` makes one of vectors from another source.

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
        self._index = KeyIndex(folder_keys(self.folder))

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
