"""Kind `hnsw`: neighbours in a graph (Y. Malkov, D. Yashunin, 2018)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mar_st.index.construct import MILVUS_EFFORTS, blocks, save, trained
from mar_st.index.errors import IndexingError, need
from mar_st.index.kind import IndexKind, MilvusIndexType
from mar_st.index.names import INDEX, VECTORS
from mar_st.index.registry import kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mar_st.index.mask import Mask
    from mar_st.index.source import VectorSource

#: Seconds between two saves of an unfinished graph.
SAVE_EVERY = 300.0

#: Smallest and largest numbers of links per vector, and of neighbours that are considered for them.
_RANGES = {"M": (2, 2048), "efConstruction": (1, 65_536)}


@kind("hnsw", after="binary")
class HnswIndex(IndexKind):
    """A graph of vectors in float32, or int8 with the vectors in float16 beside it (`storage`)."""

    BUILD: ClassVar[Mapping[str, Any]] = {"M": 32, "efConstruction": 100, "storage": "float32"}
    SEARCH: ClassVar[Mapping[str, int]] = {"ef": 64, "rescore": 2}
    LADDER = tuple(
        {"ef": ef, "rescore": 2} for ef in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
    )
    EXACT_UP_TO = 4096
    DTYPES = ("float16", "float32")

    @classmethod
    def fit(cls, params: dict[str, Any], dim: int, count: int) -> dict[str, Any]:
        """Refuse numbers of links and neighbours that FAISS cannot build with, and an unknown storage."""
        del dim, count
        for name, (least, most) in _RANGES.items():
            value = params[name]
            if type(value) is not int or not least <= value <= most:
                raise IndexingError(
                    f"{name} of hnsw must be a whole number from {least} to {most}; got {value!r}."
                )
        if params["storage"] not in ("float32", "int8"):
            raise IndexingError(f"The storage of hnsw must be float32 or int8; got {params['storage']!r}.")
        return params

    @classmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return the bytes of vectors and links."""
        links = 8 * params["M"] * (1 + 1 / max(params["M"] - 1, 1)) + 12
        return int(count * (dim * (1 if params["storage"] == "int8" else 4) + links))

    @classmethod
    def candidates(cls, dim: int) -> Iterator[dict[str, Any]]:
        """Yield two numbers of links for each storage."""
        del dim
        for storage in ("float32", "int8"):
            for links in (16, 32):
                yield {"M": links, "storage": storage}

    @classmethod
    def growth(
        cls, settings: Mapping[str, Any], sample_settings: Mapping[str, Any], count: int, sample: int
    ) -> float:
        """Return the ratio of logarithms: walking a graph takes time logarithmic in its size."""
        del settings, sample_settings
        return math.log(count + 1) / math.log(sample + 1)

    @classmethod
    def milvus(cls, dim: int, count: int) -> MilvusIndexType:
        """Return HNSW."""
        del dim, count
        return MilvusIndexType("HNSW", {"M": 32, "efConstruction": 100}, MILVUS_EFFORTS)

    @classmethod
    def stores_vectors(cls, params: Mapping[str, Any]) -> bool:
        """Return True unless the graph itself holds them in float32."""
        return bool(params["storage"] == "int8")

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
        """Link all vectors. As this takes long, the graph is saved every few minutes for a later resume.

        The random levels are seeded for every block, so that a resumed build gives the same graph as an
        uninterrupted one. (With several threads, FAISS links neighbours in the order in which threads reach
        them: two builds of a graph then differ, resumed or not.)
        """
        faiss = need("faiss")
        product = faiss.METRIC_INNER_PRODUCT

        def untrained() -> Any:
            return faiss.IndexHNSWSQ(source.dim, faiss.ScalarQuantizer.QT_8bit, params["M"], product)

        unfinished = folder / "index.unfinished"
        if unfinished.is_file():
            index = faiss.read_index(str(unfinished))
        elif params["storage"] == "int8":
            index = trained(folder, source, untrained, like)
        else:
            index = faiss.IndexHNSWFlat(source.dim, params["M"], product)
        index.hnsw.efConstruction = params["efConstruction"]
        saved = time.monotonic()
        for block in blocks(source, "graph", progress=progress, start=index.ntotal):
            index.hnsw.rng = faiss.RandomGenerator(index.ntotal)
            index.add(block)
            if time.monotonic() - saved > SAVE_EVERY:
                save(index, unfinished)
                saved = time.monotonic()
        save(index, folder / INDEX)
        unfinished.unlink(missing_ok=True)

    def _open_vectors(self) -> np.ndarray:
        if (self.folder / VECTORS).is_file():
            return super()._open_vectors()
        faiss = need("faiss")
        storage = faiss.downcast_index(self._index.storage)
        values: np.ndarray = faiss.rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
        return values.reshape(storage.ntotal, storage.d)

    @property
    def rescored(self) -> bool:
        """Return True for a graph of int8, whose scores differ from those of the vectors."""
        return bool(self.vectors.dtype == np.float16)

    def search_parameters(
        self, count: int, mask: Mask | None, wanted: Mapping[str, int], chosen: Mapping[str, Any]
    ) -> Any:
        """Return the effort; it grows with a filter, which drops most of the nodes that a walk visits."""
        share = 1.0 if mask is None else mask.count / len(self)
        ef = min(int(max(wanted["ef"], count * 3 // 2) / share), len(self))
        return need("faiss").SearchParametersHNSW(efSearch=ef, **chosen)
