"""Kind `int8`: every vector is compared, one byte per dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mar_st.index.construct import MILVUS_PROBES, add_all, cells, trained
from mar_st.index.errors import need
from mar_st.index.kind import IndexKind, MilvusIndexType
from mar_st.index.registry import kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.index.source import VectorSource


@kind("int8", after="exact")
class Int8Index(IndexKind):
    """All vectors, one byte per dimension (scalar quantizer)."""

    SEARCH: ClassVar[Mapping[str, int]] = {"rescore": 2}
    LADDER = tuple({"rescore": again} for again in (1, 2, 4, 8))

    @classmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return one byte per dimension."""
        del params
        return dim * count

    @classmethod
    def milvus(cls, dim: int, count: int) -> MilvusIndexType:
        """Return IVF_SQ8: Milvus has no plain scalar quantizer."""
        del dim
        return MilvusIndexType("IVF_SQ8", {"nlist": cells(count)}, MILVUS_PROBES)

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
        """Train the quantizer on a sample, and add all vectors."""
        del params
        faiss = need("faiss")

        def untrained() -> Any:
            return faiss.IndexScalarQuantizer(
                source.dim, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
            )

        add_all(trained(folder, source, untrained, like), folder, source, cls.kind, progress=progress)
