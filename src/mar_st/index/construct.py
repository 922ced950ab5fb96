"""Building the FAISS part of a segment: written aside, moved when it is whole.

Training uses a fixed sample and FAISS's fixed seeds. A graph (`hnsw`) takes long, so it is saved every few
minutes and resumes from there; levels are drawn again for every block, so that a build that was killed gives
what it would have given. (With several threads FAISS links neighbours in the order in which threads come by:
two builds of a graph then differ, killed or not.)
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.files import finished, open_reserved
from mar_st.index.errors import IndexingError, need
from mar_st.index.kinds import INDEX, MEANS, VECTORS, Kind, bits
from mar_st.index.source import BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.index.source import VectorSource

#: An index that is trained and empty, from which segments that are added take their codes.
TRAINED = "trained.faiss"

#: Vectors that quantizers are trained on: at most, and per cell.
MOST_TRAINED, TRAINED_PER_CELL = 131_072, 64

#: Seconds between two saves of a graph in the making.
SAVE_EVERY = 300.0

#: Largest value of float16.
_LARGEST = 65_504.0


def construct(
    folder: Path,
    source: VectorSource,
    kind: Kind,
    params: Mapping[str, Any],
    *,
    like: Path | None = None,
    progress: bool,
) -> None:
    """Write the vectors and the index of a segment.

    What is there already, whole, is kept: a build that was killed resumes.

    Args:
        folder: The segment's folder; it exists.
        source: The vectors.
        kind: The kind of index.
        params: Settings of building, complete.
        like: Folder of a segment of the same kind whose trained codes are used.
        progress: Show bars.
    """
    if (kind != "hnsw" or params["storage"] == "int8") and not (folder / VECTORS).is_file():
        _write_vectors(
            folder / VECTORS, source, "float32" if kind == "exact" else "float16", progress=progress
        )
    if kind == "exact" or (folder / INDEX).is_file():
        return
    if kind == "binary":
        _write_binary(folder, source, like, progress=progress)
    elif kind == "hnsw":
        _write_graph(folder, source, params, like, progress=progress)
    else:
        index = _trained(folder, source, kind, params, like)
        for block in _bar(source, kind, progress=progress):
            index.add(block)
        _save(index, folder / INDEX)


def _bar(source: VectorSource, what: str, *, progress: bool, start: int = 0) -> Any:
    """Blocks of vectors with a progress bar over them."""
    total = -(-len(source) // BLOCK)
    return tqdm(
        source.blocks(start),
        desc=what,
        total=total,
        initial=start // BLOCK,
        unit="block",
        disable=not progress,
    )


def _write_vectors(path: Path, source: VectorSource, dtype: str, *, progress: bool) -> None:
    with finished(path) as part:
        kept = open_reserved(part, dtype, (len(source), source.dim))
        at = 0
        for block in _bar(source, "vectors", progress=progress):
            # Dot products of such vectors would overflow anyway; clipped they stay the largest.
            kept[at : at + len(block)] = block if dtype == "float32" else block.clip(-_LARGEST, _LARGEST)
            at += len(block)
        kept.flush()


def _sample(source: VectorSource, most: int) -> np.ndarray:
    """Evenly drawn vectors, always the same."""
    if len(source) <= most:
        return source.take(np.arange(len(source)))
    return source.take(np.sort(np.random.default_rng(0).choice(len(source), most, replace=False)))


def _save(index: Any, path: Path, *, binary: bool = False) -> None:
    faiss = need("faiss")
    try:
        with finished(path) as part:
            (faiss.write_index_binary if binary else faiss.write_index)(index, str(part))
    except RuntimeError as error:  # FAISS has one error for all
        reason = " ".join(str(error).split())[-200:]
        free = shutil.disk_usage(path.parent).free
        raise IndexingError(
            f"{path} cannot be written ({reason}); {free:,} bytes are free there. Make room, and start again."
        ) from error


def _trained(
    folder: Path, source: VectorSource, kind: Kind, params: Mapping[str, Any], like: Path | None
) -> Any:
    """An empty index with trained quantizers."""
    faiss = need("faiss")
    path = folder / TRAINED
    if like is not None and not path.is_file():
        _save(faiss.read_index(str(like / TRAINED)), path)
    if path.is_file():
        return faiss.read_index(str(path))
    dim, product = source.dim, faiss.METRIC_INNER_PRODUCT
    sample = _sample(source, MOST_TRAINED)
    if kind == "int8":
        index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, product)
    elif kind == "hnsw":
        index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, params["M"], product)
    else:
        cells, width = params["nlist"], params["bits"]
        index = faiss.IndexIVFPQ(faiss.IndexFlatIP(dim), dim, cells, params["m"], width, product)
        index.cp.max_points_per_centroid = TRAINED_PER_CELL
    index.train(sample)
    _save(index, path)
    return index


def _write_graph(
    folder: Path, source: VectorSource, params: Mapping[str, Any], like: Path | None, *, progress: bool
) -> None:
    faiss = need("faiss")
    unfinished = folder / "index.unfinished"
    if unfinished.is_file():
        index = faiss.read_index(str(unfinished))
    elif params["storage"] == "int8":
        index = _trained(folder, source, "hnsw", params, like)
    else:
        index = faiss.IndexHNSWFlat(source.dim, params["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = params["efConstruction"]
    saved = time.monotonic()
    for block in _bar(source, "graph", progress=progress, start=index.ntotal):
        index.hnsw.rng = faiss.RandomGenerator(index.ntotal)
        index.add(block)
        if time.monotonic() - saved > SAVE_EVERY:
            _save(index, unfinished)
            saved = time.monotonic()
    _save(index, folder / INDEX)
    unfinished.unlink(missing_ok=True)


def _write_binary(folder: Path, source: VectorSource, like: Path | None, *, progress: bool) -> None:
    faiss = need("faiss")
    if like is not None:
        means = np.load(like / MEANS, allow_pickle=False)
    else:
        means = _sample(source, MOST_TRAINED).mean(axis=0, dtype=np.float64).astype(np.float32)
    index = faiss.IndexBinaryFlat(-(-source.dim // 8) * 8)
    for block in _bar(source, "bits", progress=progress):
        index.add(bits(block, means))
    np.save(folder / MEANS, means)
    _save(index, folder / INDEX, binary=True)
