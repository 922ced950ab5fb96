"""Teachers: sources of the vectors that a query encoder is aligned to.

A teacher is anything that returns vectors of texts: a local model (`ModelTeacher`), vectors encoded earlier
(`FolderTeacher`), an embeddings endpoint (`EndpointTeacher`). All return `Vectors`: rows on disk, whatever
their number. A `CrossEncoderTeacher` returns scores of pairs instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mar_st.encode.vectors import Vectors
from mar_st.teachers.endpoint import EndpointTeacher
from mar_st.teachers.folder import FolderTeacher, is_vector_folder
from mar_st.teachers.keys import text_keys
from mar_st.teachers.model import CrossEncoderTeacher, ModelTeacher, RoleEncoding
from mar_st.teachers.store import TeacherStore, store_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.recipes.schema import Side

__all__ = [
    "CrossEncoderTeacher",
    "EndpointTeacher",
    "FolderTeacher",
    "ModelTeacher",
    "RoleEncoding",
    "Teacher",
    "TeacherStore",
    "Vectors",
    "is_vector_folder",
    "store_root",
    "text_keys",
]


class Teacher(Protocol):
    """Vectors of texts, and what they depend on."""

    def identity(self, role: Side) -> dict[str, Any]:
        """Return, as JSON, everything the vectors of texts in this role depend on."""

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return vectors of texts, in their order."""
