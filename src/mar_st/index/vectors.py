"""The vectors of one segment: kinds of index, how one is built, how much memory it needs, and its search.

| kind | compares | in memory per vector |
| --- | --- | --- |
| `exact` | all vectors, float32 | 4 dim |
| `hnsw` | neighbours in a graph (Malkov, Yashunin, 2018), float32 | 4 dim + 8.6 M |
| `ivf-pq` | product codes in the nearest cells (Jégou, Douze, Schmid, 2011) | m + 8 |

`ivf-pq` keeps the vectors in float16 beside the index. From this file, a search reads only the rows that it
compares again (`rescore` times as many candidates as results). Every file is mapped into memory
(`IO_FLAG_MMAP_IFC` of FAISS 1.15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.files import load_array
from mar_st.index import flat
from mar_st.index.flat import Mask, faiss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mar_st.encode.vectors import Vectors

VECTORS, INDEX = "vectors.npy", "index.faiss"

#: Vectors that are read at once.
_PER_READ = 8192

#: If a filter leaves at most this many vectors, or this share, a search compares with all of them.
BRUTE_ROWS, BRUTE_SHARE = 20_000, 0.05

#: Maximum number of vectors that quantizers are trained on; per cell at most, and per centroid at least.
_MAX_TRAINING, _TRAINED_PER_CELL, _TRAINED_PER_CENTROID = 131_072, 64, 39

#: Search settings by kind, from cheap to thorough.
LADDERS: dict[str, list[dict[str, int]]] = {
    "exact": [{}],
    "hnsw": [{"ef": ef} for ef in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)],
    "ivf-pq": [
        {"nprobe": probes, "rescore": again}
        for probes, again in (
            (4, 5), (8, 5), (8, 10), (16, 10), (32, 10), (32, 20), (64, 20), (128, 20), (128, 50), (256, 50),
            (512, 100),
        )
    ],
}  # fmt: skip

#: Largest value of float16.
_FLOAT16_MAX = 65_504.0


def build_settings(kind: str, dim: int, count: int) -> dict[str, int]:
    """Return the build settings of a kind for `count` vectors of `dim` dimensions.

    Raises:
        MarError: The kind is unknown.
    """
    if kind not in LADDERS:
        raise MarError(f"Kinds of index are auto, {', '.join(LADDERS)}; got {kind!r}.")
    if kind == "hnsw":
        return {"M": 32, "efConstruction": 100}
    if kind == "exact":
        return {}
    enough = max(1, count // _TRAINED_PER_CENTROID)
    bits = min(max(1, enough.bit_length() - 1), 8)
    return {"nlist": min(cells(count), enough), "m": code_bytes(dim), "bits": bits}


def cells(count: int) -> int:
    """Return the cells for `count` vectors: the power of two nearest to twice the square root of `count`."""
    return int(2 ** round(np.log2(2 * max(count, 1) ** 0.5)))


def code_bytes(dim: int) -> int:
    """Return the parts that product codes cut vectors into: a divisor of `dim`, at most a quarter of it."""
    return next(m for m in range(max(1, dim // 4), 0, -1) if dim % m == 0)


def build_vectors(
    folder: Path, kind: str, params: Mapping[str, Any], source: Vectors, *, progress: bool = False
) -> None:
    """Write the vectors and the index of a segment.

    Args:
        folder: The segment's folder; it exists.
        kind: Kind of index.
        params: Build settings, see `build_settings`.
        source: The vectors.
        progress: Show progress bars.
    """
    if kind != "hnsw":  # the graph holds them
        dtype = "float32" if kind == "exact" else "float16"
        array = np.lib.format.open_memmap(folder / VECTORS, "w+", dtype, source.shape)
        for start, block in _blocks(source, "vectors", progress=progress):
            # Products of such vectors would overflow anyway; clipped they stay the largest.
            values = block if kind == "exact" else block.clip(-_FLOAT16_MAX, _FLOAT16_MAX)
            array[start : start + len(block)] = values
        array.flush()
    if kind == "exact":
        return
    if kind == "hnsw":
        index = faiss().IndexHNSWFlat(source.dim, params["M"], faiss().METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = params["efConstruction"]
    else:
        factory = f"IVF{params['nlist']},PQ{params['m']}x{params['bits']}"
        index = faiss().index_factory(source.dim, factory, faiss().METRIC_INNER_PRODUCT)
        index.cp.max_points_per_centroid = _TRAINED_PER_CELL
        rows = np.random.default_rng(0).permutation(len(source))[:_MAX_TRAINING]
        # A code has two centroids or more, so one vector alone is trained on twice.
        index.train(source[np.sort(rows)] if len(rows) > 1 else np.repeat(source[:], 2, axis=0))
    for _, block in _blocks(source, kind, progress=progress):
        index.add(block)
    faiss().write_index(index, str(folder / INDEX))


def _blocks(source: Vectors, what: str, *, progress: bool) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of vectors, and the row of the first, with a progress bar."""
    for start in tqdm(range(0, len(source), _PER_READ), desc=what, unit="block", disable=not progress):
        yield start, source[start : start + _PER_READ]


class VectorIndex:
    """The built index of one segment's vectors, mapped into memory; safe to search from several threads.

    Args:
        folder: The segment's folder.
        kind: Kind of index.

    Attributes:
        vectors: Vectors that scores are computed with, `(count, dim)` float32 or float16.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self._index: Any = None
        if kind != "exact":
            self._index = faiss().read_index(str(folder / INDEX), faiss().IO_FLAG_MMAP_IFC)
        if kind == "hnsw":
            storage = faiss().downcast_index(self._index.storage)
            values = faiss().rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
            self.vectors: np.ndarray = values.reshape(storage.ntotal, storage.d)
        else:  # as a plain array: slices of numpy.memmap cost microseconds each
            self.vectors = load_array(folder / VECTORS, mapped=True).view(np.ndarray)

    def search(
        self,
        queries: np.ndarray,
        k: int,
        settings: Mapping[str, int] | None = None,
        *,
        mask: Mask | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best `k` rows for each query.

        Args:
            queries: `(queries, dim)` float32, C-contiguous.
            k: Rows per query.
            settings: Search settings, see `LADDERS`; default thorough ones.
            mask: Rows that may be found; default all.

        Returns:
            Scores, float32, and rows, int64, `(queries, k)`, by descending score; -inf and -1 where there are
            fewer.
        """
        total = len(self.vectors)
        few = mask is not None and mask.count <= max(BRUTE_ROWS, k, int(BRUTE_SHARE * total))
        if self.kind == "exact" or few:
            return flat.search(queries, self.vectors, k, mask=mask)
        wanted = {**LADDERS[self.kind][-1], **(settings or {})}
        rescored = self.kind == "ivf-pq"  # a graph has the scores already
        count = min(total, k * wanted["rescore"] if rescored else k)
        params = self._parameters(count, mask, wanted)
        scores, rows = self._index.search(queries, count, params=params)
        if rescored:
            scores, rows = flat.rescore(queries, self.vectors, rows, k)
        else:
            scores, rows = flat.top(np.where(rows >= 0, scores, -np.inf).astype(np.float32), rows, k)
        short = np.flatnonzero(rows[:, min(k, total if mask is None else mask.count) - 1] < 0)
        if len(short):  # the graph or the cells ran out before k were found
            scores[short], rows[short] = flat.search(queries[short], self.vectors, k, mask=mask)
        return scores, rows

    def _parameters(self, count: int, mask: Mask | None, wanted: Mapping[str, int]) -> Any:
        chosen = {} if mask is None else {"sel": mask.selector()}
        if self.kind == "hnsw":  # the effort grows with a filter, which drops most of the nodes of a walk
            share = 1.0 if mask is None else mask.count / len(self.vectors)
            ef = min(int(max(wanted["ef"], count * 3 // 2) / share), len(self.vectors))
            return faiss().SearchParametersHNSW(efSearch=ef, **chosen)
        return faiss().SearchParametersIVF(nprobe=min(wanted["nprobe"], self._index.nlist), **chosen)
