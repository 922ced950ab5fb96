"""Kind `exact`: every vector is compared, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.index.kind import IndexKind, MilvusIndexType
from mar_st.index.registry import kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.index.source import VectorSource


@kind("exact")
class ExactIndex(IndexKind):
    """All vectors, float32; there is no FAISS index."""

    EXACT = True
    DTYPES = ("float32",)

    @classmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return four bytes per dimension."""
        del params
        return 4 * dim * count

    @classmethod
    def milvus(cls, dim: int, count: int) -> MilvusIndexType:
        """Return FLAT."""
        del dim, count
        return MilvusIndexType("FLAT", {}, cls.LADDER)

    @classmethod
    def build(
        cls,
        folder: Path,
        source: VectorSource,
        params: Mapping[str, Any],
        like: Path | None,
        *,
        progress: bool,
    ) -> None:
        """Write nothing: the vectors are the index."""
