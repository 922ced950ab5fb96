"""Kind `ivf-pq`: product codes in the nearest cells (H. Jégou, M. Douze, C. Schmid, 2011)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mar_st.index.construct import MILVUS_PROBES, add_all, cells, trained
from mar_st.index.errors import IndexingError, need
from mar_st.index.kind import IndexKind, MilvusIndexType
from mar_st.index.registry import kind
from mar_st.index.source import JoinedSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mar_st.index.mask import Mask
    from mar_st.index.source import VectorSource

#: Vectors that FAISS requires for every centroid that it trains.
TRAINED_PER_CENTROID = 39

#: Maximum number of training vectors per cell.
TRAINED_PER_CELL = 64


@kind("ivf-pq", after="hnsw")
class IvfPqIndex(IndexKind):
    """Product codes of `m` bytes in `nlist` cells; 0 means a number chosen for the vectors."""

    BUILD: ClassVar[Mapping[str, Any]] = {"nlist": 0, "m": 0, "bits": 0}
    REFITTED = ("nlist", "bits")
    SEARCH: ClassVar[Mapping[str, int]] = {"nprobe": 32, "rescore": 10}
    LADDER = tuple(
        {"nprobe": probes, "rescore": again}
        for probes, again in (
            (4, 5), (8, 5), (8, 10), (16, 10), (32, 10), (32, 20), (64, 20), (128, 20), (128, 50), (256, 50),
            (512, 100),
        )
    )  # fmt: skip

    @classmethod
    def fit(cls, params: dict[str, Any], dim: int, count: int) -> dict[str, Any]:
        """Set cells, bits and bytes that were not given; fewer if there are few vectors to train on."""
        for name in cls.BUILD:
            value = params[name]
            if type(value) is not int or value < 0:
                raise IndexingError(f"{name} of ivf-pq is a whole number, 0 to choose one; got {value!r}.")
        enough = max(1, count // TRAINED_PER_CENTROID)
        params["nlist"] = min(params["nlist"] or cells(count), enough)
        params["bits"] = min(params["bits"] or 8, max(1, enough.bit_length() - 1))
        params["m"] = params["m"] or subvectors(dim, 4)
        if dim % params["m"]:
            raise IndexingError(f"m must divide the {dim} dimensions of ivf-pq; got {params['m']}.")
        return params

    @classmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return the bytes of codes and ids, centroids of the cells, and centroids of the codes."""
        return int(count * (params["m"] + 8) + params["nlist"] * 4 * dim + 256 * 4 * dim)

    @classmethod
    def candidates(cls, dim: int) -> Iterator[dict[str, Any]]:
        """Yield the codes of a quarter and of an eighth of the dimensions."""
        for width in (4, 8):
            yield {"m": subvectors(dim, width)}

    @classmethod
    def growth(
        cls, settings: Mapping[str, Any], sample_settings: Mapping[str, Any], count: int, sample: int
    ) -> float:
        """Return the ratio of cell sizes: probing a cell takes time proportional to its size."""
        return max(1.0, float((count / settings["nlist"]) / (sample / sample_settings["nlist"])))

    @classmethod
    def milvus(cls, dim: int, count: int) -> MilvusIndexType:
        """Return IVF_PQ."""
        params = {"nlist": cells(count), "m": subvectors(dim, 4), "nbits": 8}
        return MilvusIndexType("IVF_PQ", params, MILVUS_PROBES)

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
        """Train cells and codes on a sample, and add all vectors."""
        faiss = need("faiss")

        def untrained() -> Any:
            dim, product = source.dim, faiss.METRIC_INNER_PRODUCT
            index = faiss.IndexIVFPQ(
                faiss.IndexFlatIP(dim), dim, params["nlist"], params["m"], params["bits"], product
            )
            index.cp.max_points_per_centroid = TRAINED_PER_CELL
            return index

        # A code has two centroids or more, so one vector alone is trained on twice.
        training = source if len(source) > 1 else JoinedSource([source, source])
        add_all(trained(folder, training, untrained, like), folder, source, cls.kind, progress=progress)

    def search_parameters(
        self, count: int, mask: Mask | None, wanted: Mapping[str, int], chosen: Mapping[str, Any]
    ) -> Any:
        """Return the number of cells to probe."""
        del count, mask
        nprobe = min(wanted["nprobe"], self._index.nlist)
        return need("faiss").SearchParametersIVF(nprobe=nprobe, **chosen)


def subvectors(dim: int, width: int) -> int:
    """Return the bytes of a product code: the largest divisor of `dim` that is at most `dim / width`."""
    return next(m for m in range(max(1, dim // width), 0, -1) if dim % m == 0)
