"""The vectors of one segment: kinds of index, how one is built, how much memory it needs, and its search.

| kind | compares | in memory per vector |
| --- | --- | --- |
| `exact` | all vectors, float32 | 4 dim |
| `int8` | all vectors, one byte per dimension (scalar quantizer) | dim |
| `hnsw` | neighbours in a graph (Malkov, Yashunin, 2018), float32 | 4 dim + 8.6 M |
| `ivf-pq` | product codes in the nearest cells (Jégou, Douze, Schmid, 2011) | m + 8 |

All but `exact` and `hnsw` keep the vectors in float16 beside the index. From this file, a search
reads only the rows that it compares again (`rescore` times as many candidates as results). Every file is
mapped into memory (`IO_FLAG_MMAP_IFC` of FAISS 1.15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.files import load_array, one_line
from mar_st.index import flat
from mar_st.index.flat import Mask, faiss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

VECTORS, INDEX = "vectors.npy", "index.faiss"

#: Vectors that are read at once.
VECTORS_PER_READ = 8192

#: If a filter leaves at most this many vectors, or this share, a search compares with all of them.
BRUTE_ROWS, BRUTE_SHARE = 20_000, 0.05

#: Maximum number of vectors that quantizers are trained on; per cell at most, and per centroid at least.
_MAX_TRAINING, _TRAINED_PER_CELL, _TRAINED_PER_CENTROID = 131_072, 64, 39

#: Search settings by kind, from cheap to thorough.
LADDERS: dict[str, list[dict[str, int]]] = {
    "exact": [{}],
    "int8": [{"rescore": again} for again in (1, 2, 4, 8)],
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

#: Length of a vector (float32) below which its squares lose digits.
_SHORTEST = 1e-12


def build_settings(kind: str, dim: int, count: int) -> dict[str, int]:
    """Return the build settings of a kind for `count` vectors of `dim` dimensions.

    Raises:
        MarError: The kind is unknown.
    """
    if kind not in LADDERS:
        raise MarError(f"Kinds of index are auto, {', '.join(LADDERS)}; got {kind!r}.")
    if kind == "hnsw":
        return {"M": 32, "efConstruction": 100}
    if kind != "ivf-pq":
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


class Vectors:
    """Vectors of some sources, one after the other, as they are compared: float32 `(rows, dim)`.

    Args:
        parts: Arrays or folders of vectors, each with the rows to take of it; `None`: all.
        normalise: Bring them to length 1.
    """

    def __init__(self, parts: Sequence[tuple[Any, np.ndarray | None]], *, normalise: bool = False) -> None:
        self.parts, self.normalise = list(parts), normalise
        self.dim = int(parts[0][0][:1].shape[1])
        counts = [len(source) if rows is None else len(rows) for source, rows in self.parts]
        self._starts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        taken = np.empty((len(rows), self.dim), dtype=np.float32)
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number, (source, chosen) in enumerate(self.parts):
            here = np.flatnonzero(numbers == number)
            if len(here):
                places = rows[here] - self._starts[number]
                taken[here] = source[places if chosen is None else chosen[places]]
        return unit(taken) if self.normalise else taken

    def blocks(self, what: str = "", *, progress: bool = False) -> Iterator[np.ndarray]:
        """Yield all vectors, `VECTORS_PER_READ` at a time, with a progress bar."""
        starts = range(0, len(self), VECTORS_PER_READ)
        for start in tqdm(starts, desc=what, unit="block", disable=not progress):
            yield self[start : start + VECTORS_PER_READ]

    def sample(self, count: int, seed: int) -> np.ndarray:
        """Return at most `count` vectors, drawn uniformly."""
        if len(self) <= count:
            return self[:]
        return self[np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return finite vectors normalised to length 1, float32; a vector of zeros does not change."""
    vectors = np.asarray(vectors, dtype=np.result_type(vectors, np.float32))
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not ((lengths >= _SHORTEST) & np.isfinite(lengths)).all():  # squares are beyond the range of float32
        vectors = vectors.astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)


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
        dtype, start = "float32" if kind == "exact" else "float16", 0
        array = np.lib.format.open_memmap(folder / VECTORS, "w+", dtype, (len(source), source.dim))
        for block in source.blocks("vectors", progress=progress):
            # Products of such vectors would overflow anyway; clipped they stay the largest.
            values = block if kind == "exact" else block.clip(-_FLOAT16_MAX, _FLOAT16_MAX)
            array[start : start + len(block)] = values
            start += len(block)
        array.flush()
    if kind == "exact":
        return
    index = _untrained(kind, params, source.dim)
    if not index.is_trained:
        training = source.sample(_MAX_TRAINING, 0)
        # A code has two centroids or more, so one vector alone is trained on twice.
        index.train(training if len(training) > 1 else np.repeat(training, 2, axis=0))
    for block in source.blocks(kind, progress=progress):
        index.add(block)
    faiss().write_index(index, str(folder / INDEX))


def _untrained(kind: str, params: Mapping[str, Any], dim: int) -> Any:
    factory = {
        "int8": "SQ8",
        "hnsw": f"HNSW{params.get('M')},Flat",
        "ivf-pq": f"IVF{params.get('nlist')},PQ{params.get('m')}x{params.get('bits')}",
    }[kind]
    index = faiss().index_factory(dim, factory, faiss().METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index.hnsw.efConstruction = params["efConstruction"]
    if kind == "ivf-pq":
        index.cp.max_points_per_centroid = _TRAINED_PER_CELL
    return index


class VectorIndex:
    """The built index of one segment's vectors, mapped into memory; safe to search from several threads.

    Args:
        folder: The segment's folder.
        kind: Kind of index.
        count: Number of vectors.
        dim: Dimensions of the vectors.

    Attributes:
        vectors: Vectors that scores are computed with, `(count, dim)` float32 or float16.

    Raises:
        MarError: A file is missing or damaged.
    """

    def __init__(self, folder: Path, kind: str, count: int, dim: int) -> None:
        self.kind = kind
        self._index: Any = None
        try:
            if kind != "exact":
                self._index = faiss().read_index(str(folder / INDEX), faiss().IO_FLAG_MMAP_IFC)
            if kind == "hnsw":
                storage = faiss().downcast_index(self._index.storage)
                values = faiss().rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
                self.vectors: np.ndarray = values.reshape(storage.ntotal, storage.d)
            else:  # as a plain array: slices of numpy.memmap cost microseconds each
                self.vectors = load_array(folder / VECTORS, mapped=True).view(np.ndarray)
        except (OSError, RuntimeError, ValueError, AttributeError) as error:
            raise MarError(f"{folder} is damaged ({one_line(error)}). Build the index again.") from error
        held = count if self._index is None else self._index.ntotal
        if self.vectors.shape != (count, dim) or held != count or not self.vectors.flags.c_contiguous:
            raise MarError(
                f"{folder} does not hold {count} vectors of {dim} dimensions. Build the index again."
            )

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
        rescored = self.kind != "hnsw"  # a graph has the scores already
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
        if self.kind == "ivf-pq":
            nprobe = min(wanted["nprobe"], self._index.nlist)
            return faiss().SearchParametersIVF(nprobe=nprobe, **chosen)
        return faiss().SearchParameters(**chosen)
