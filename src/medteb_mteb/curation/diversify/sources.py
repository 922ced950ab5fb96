"""Sources of vectors of texts: a model, through a store on disk, or an existing file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from mar_st.files import sha256
from mar_st.model.names import model_source
from mar_st.model.opening import open_model
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.teachers import ModelTeacher
    from mar_st.teachers.store import TeacherStore
    from mar_st.teachers.vectors import Vectors
    from medteb_mteb.curation.diversify.vectors import Rows
    from medteb_mteb.curation.files.records import Text

__all__ = ["Encoded", "Kind", "PrecomputedVectors", "TextVectors"]

Kind: TypeAlias = Literal["queries", "documents"]


class TextVectors(Protocol):
    """Gives vectors of texts."""

    def identity(self) -> dict[str, Any]:
        """Return, as JSON, everything the vectors depend on besides the texts."""

    def vectors(self, texts: Sequence[Text]) -> Rows:
        """Return the vectors of texts, `(len(texts), dim)`, in their order."""


class Encoded:
    """Vectors by a sentence-transformers model; each text is encoded once and its vector kept.

    Args:
        model: A folder, a Hub name, or `mar-mini`.
        kind: Whether the texts are queries or documents, for models with prompts or routes.
        store: Folder of stored vectors, see `mar_st.teachers.store.TeacherStore`.
        batch_size: Texts per forward pass.
        show_progress: Show a progress bar while texts are encoded.
    """

    def __init__(
        self, model: str, kind: Kind, store: str | Path, *, batch_size: int = 64, show_progress: bool = True
    ) -> None:
        self.model, self.root = model, Path(store)
        self.role: Literal["query", "document"] = "query" if kind == "queries" else "document"
        self.batch_size, self.show_progress = batch_size, show_progress

    @cached_property
    def _store(self) -> TeacherStore:
        from mar_st.teachers.store import TeacherStore  # lazy: sentence_transformers

        return TeacherStore(self.root)

    @cached_property
    def _teacher(self) -> ModelTeacher:
        from mar_st.teachers import ModelTeacher  # lazy: sentence_transformers

        return ModelTeacher.of_model(_load(self.model), self._store, batch_size=self.batch_size)

    def identity(self) -> dict[str, Any]:
        """Return the digest of the model (independent of its path), its prompt, and the role of the texts."""
        return {**self._teacher.identity(self.role), "role": self.role}

    def vectors(self, texts: Sequence[Text]) -> Vectors:
        """Return the vectors of texts, titles included; those that the store lacks are computed."""
        full = [text.full for text in texts]
        return self._store.vectors(self._teacher, full, self.role, show_progress=self.show_progress)


class PrecomputedVectors:
    """Vectors that were computed before.

    Args:
        path: A folder of vectors (`mar encode`, `mar_st.encode.write_vectors`), whose ids are those of the
            texts.
        ids: Ids of the texts that will be requested, in the order of the source.

    Raises:
        MarError: It is no folder of vectors, or an id has no vector.
    """

    def __init__(self, path: str | Path, ids: Sequence[str]) -> None:
        from mar_st.encode import VectorFolder  # lazy: pyarrow

        self.folder = VectorFolder.open(path)
        self._row = {name: row for row, name in enumerate(self.folder.ids.to_pylist())}
        missing = [name for name in ids if name not in self._row]
        if missing:
            raise BuildError(f"{path} has no vector for {len(missing)} texts, for instance {missing[0]!r}.")

    def identity(self) -> dict[str, Any]:
        """Return the digest of the folder's manifest, which has the digest of every file."""
        return {"kind": "folder", "sha256": sha256(self.folder.path / "manifest.json")}

    def vectors(self, texts: Sequence[Text]) -> Rows:
        """Return the vectors of texts, read from the folder in place."""
        from mar_st.teachers import Vectors  # lazy: sentence_transformers

        return Vectors([self.folder], np.array([self._row[text.id] for text in texts], dtype=np.int64))


def _load(name: str) -> Any:
    folder = Path(model_source(name))
    if folder.is_dir():
        return open_model(folder, local_files_only=True)
    if "/" not in name or name.startswith((".", "/", "~")):
        raise BuildError(f"There is no model folder {name}. Give a folder, or ORG/NAME of the Hub.")
    try:
        return open_model(name)
    except Exception as error:  # the Hub client raises a dozen types
        reason = " ".join(str(error).split())[:200]
        raise BuildError(
            f"The model {name} is not a folder here and cannot be loaded from the Hub "
            f"({type(error).__name__}: {reason})."
        ) from error
