"""An existing document space: its teacher, and how its vectors are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from mar_st.errors import MarError
from mar_st.model.encoders import check_source
from mar_st.model.mar import open_model
from mar_st.teachers.endpoint import ENDPOINT_PREFIX, EndpointTeacher
from mar_st.teachers.model import ModelTeacher
from mar_st.teachers.store import FolderTeacher, TeacherStore, is_vector_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.encode.vectors import Vectors
    from mar_st.recipes.schema import Side

Teacher: TypeAlias = ModelTeacher | FolderTeacher | EndpointTeacher

#: How far from 1 the length of a vector may be that counts as normalised (half precision rounds).
UNIT_TOLERANCE = 1e-2

#: Vectors that are read at a time.
BLOCK = 8192
#: Vectors of at most this length have no direction.
SHORTEST = 1e-12


@dataclass
class Space:
    """A document space: its teacher, and how much of the teacher's vectors it keeps.

    It gives students vectors of length 1: only the direction of a query vector decides what it retrieves,
    so students learn directions, whatever the lengths in the index.

    Attributes:
        teacher: The teacher.
        full: Width of the teacher's vectors.
        dim: Dimensions kept.
        unit: Whether vectors of the space have length 1.
    """

    teacher: Teacher
    full: int
    dim: int
    unit: bool

    @classmethod
    def of(cls, teacher: Teacher, texts: Mapping[Side, Sequence[str]], dim: int | None) -> Space:
        """Return the space of a teacher, after it has encoded all texts.

        Args:
            teacher: The teacher.
            texts: Queries and documents; at least one side must have texts.
            dim: Dimensions to keep, the first ones; `None` keeps all.

        Raises:
            MarError: The teacher has fewer dimensions, a vector has no direction, or the vectors have
                various lengths and a similarity other than cosine or dot product.
        """
        vectors = {role: teacher.vectors(given, role) for role, given in texts.items() if given}
        full = next(iter(vectors.values())).shape[1]
        if dim is not None and dim > full:
            raise MarError(f"--dim is {dim}, but the teacher's vectors have {full} dimensions.")
        farthest = max(_checked(part, role, dim or full) for role, part in vectors.items())
        space = cls(teacher, full, dim or full, farthest < UNIT_TOLERANCE)
        if not space.unit and space.similarity not in ("cosine", "dot"):
            raise MarError(
                f"The teacher's vectors are not normalised and are compared by {space.similarity}; a query "
                "encoder can only be aligned to a teacher with cosine or dot product."
            )
        return space

    @property
    def similarity(self) -> str:
        """Return the similarity function of the space."""
        model = getattr(self.teacher, "model", None)
        if isinstance(model, SentenceTransformer):
            return str(model.similarity_fn_name)
        return "cosine" if self.unit else "dot"

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return the targets of a student: the teacher's vectors, truncated and normalised."""
        whole = self.teacher.vectors(texts, role)
        return whole if self.unit and self.dim == self.full else whole.cut(self.dim, normalised=True)

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of documents as an index of this space holds them (for cosine: of length 1)."""
        if self.unit or self.similarity == "cosine":
            return self.vectors(texts, "document")
        return self.teacher.vectors(texts, "document").cut(self.dim)


def _checked(vectors: Vectors, role: Side, dim: int) -> float:
    """Read all vectors before hours of training; returns how far from 1 their lengths are at most.

    Raises:
        MarError: A vector has no direction in its first `dim` dimensions.
    """
    farthest = 0.0
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        with np.errstate(over="ignore"):
            lengths, kept = (np.linalg.norm(block[:, :width], axis=1) for width in (block.shape[1], dim))
        bad = np.flatnonzero(~((kept > SHORTEST) & np.isfinite(lengths)))
        if len(bad):
            raise MarError(
                f"The teacher's vector of {role} {start + int(bad[0]) + 1} of {len(vectors)} has the "
                f"length {kept[bad[0]]:g} in {dim} dimensions, so it has no direction that can be learnt. "
                "Compute it again, or leave its text out."
            )
        farthest = max(farthest, float(np.abs(lengths - 1).max()))
    return farthest


def open_teacher(
    spec: str,
    root: Path,
    *,
    prompts: Mapping[Side, str] | None = None,
    autocast: bool = False,
) -> Teacher:
    """Open a teacher by its name: a model, a folder of vectors, or an endpoint.

    Args:
        spec: Folder or Hub name of a sentence-transformers model, a folder of vectors (see
            `FolderTeacher`), or `openai:MODEL@BASE_URL`.
        root: Folder of the teacher store.
        prompts: Prompts for queries and documents of an endpoint; a model has its own.
        autocast: Let a model compute in bfloat16.

    Raises:
        MarError: The teacher does not exist.
    """
    if spec.startswith(ENDPOINT_PREFIX):
        return EndpointTeacher.parse(spec, root, prompts=prompts)
    folder = Path(spec).expanduser()
    if is_vector_folder(folder):
        return FolderTeacher(folder)
    check_source(spec, what="teacher")
    with torch.random.fork_rng(devices=[]):
        # Weights that a checkpoint lacks, such as the unused pooler of a BERT, are drawn at random. The
        # teacher must be the same each time, or none of its stored vectors would be found again.
        torch.manual_seed(0)
        model = open_model(spec)
    return ModelTeacher.of_model(model, TeacherStore(root), autocast=autocast)
