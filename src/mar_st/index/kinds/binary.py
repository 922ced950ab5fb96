"""Kind `binary`: every vector is compared, one bit per dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mar_st.index.construct import blocks, sampled, save
from mar_st.index.errors import IndexingError, need
from mar_st.index.kind import IndexKind, read_array, read_index
from mar_st.index.names import INDEX, MEANS
from mar_st.index.registry import kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.index.mask import Mask
    from mar_st.index.source import VectorSource


@kind("binary", after="int8")
class BinaryIndex(IndexKind):
    """All vectors, one bit per dimension."""

    SEARCH: ClassVar[Mapping[str, int]] = {"rescore": 20}
    LADDER = tuple({"rescore": again} for again in (3, 5, 10, 20, 40, 80, 160))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._means = read_array(folder / MEANS)

    @classmethod
    def memory(cls, params: Mapping[str, Any], dim: int, count: int) -> int:
        """Return one bit per dimension."""
        del params
        return -(-dim // 8) * count

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
        """Write the bits of all vectors, and the means that they were compared with."""
        del params
        faiss = need("faiss")
        if like is not None:
            means = read_array(like / MEANS)
        else:
            means = sampled(source).mean(axis=0, dtype=np.float64).astype(np.float32)
        index = faiss.IndexBinaryFlat(-(-source.dim // 8) * 8)
        for block in blocks(source, "bits", progress=progress):
            index.add(bits(block, means))
        np.save(folder / MEANS, means)
        save(index, folder / INDEX, binary=True)

    def _read(self) -> Any:
        return read_index(self.folder / INDEX, binary=True)

    def shapes(self, count: int, dim: int) -> list[tuple[str, Any, Any]]:
        """Return the files with their actual and expected shapes; bits come in whole bytes."""
        vectors, (name, held, _) = super().shapes(count, dim)
        return [vectors, (name, held, (count, -(-dim // 8) * 8)), (MEANS, self._means.shape, (dim,))]

    def check(self, count: int, dim: int) -> None:
        """Make sure that the files fit, as `IndexKind.check`, and that means are finite.

        Raises:
            IndexingError: A file holds another shape, type or order, or values that are not finite.
        """
        super().check(count, dim)
        if self._means.dtype.kind != "f" or not np.isfinite(self._means).all():
            raise IndexingError(
                f"{self.folder / MEANS} holds {self._means.dtype} values; finite float32 is expected. "
                "Copy the index again, or build it again."
            )

    def nearest(
        self, queries: np.ndarray, count: int, mask: Mask | None, wanted: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidates with the most bits in common; scores are negative Hamming distances."""
        distances, rows = super().nearest(bits(queries, self._means), count, mask, wanted)
        return -distances.astype(np.float32), rows


def bits(vectors: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return one bit per dimension, set where the value is above its mean, `(n, dim / 8)` uint8.

    Vectors of text encoders share a direction, so signs of uncentred values would carry little information.
    """
    return np.packbits(vectors > means, axis=1, bitorder="little")
