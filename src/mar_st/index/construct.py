"""Build steps that all kinds of index share: files are written to temporary names, then moved into place.

Training uses a fixed sample and FAISS's fixed seeds.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.files import finished, open_reserved
from mar_st.index.errors import IndexingError, need
from mar_st.index.names import INDEX, TRAINED_INDEX
from mar_st.index.source import VECTORS_PER_READ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mar_st.index.source import VectorSource

#: Maximum number of vectors that quantizers are trained on.
MAX_TRAINING_VECTORS = 131_072

#: Search settings of Milvus's graphs and cells, from cheap to thorough.
MILVUS_EFFORTS = tuple({"ef": ef} for ef in (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024))
MILVUS_PROBES = tuple({"nprobe": probes} for probes in (4, 8, 16, 32, 64, 128, 256, 512, 1024))

#: Largest value of float16.
_FLOAT16_MAX = 65_504.0


def cells(count: int) -> int:
    """Return the cells for `count` vectors: the power of two nearest to twice the square root of `count`."""
    return int(2 ** round(np.log2(2 * max(count, 1) ** 0.5)))


def blocks(source: VectorSource, what: str, *, progress: bool, start: int = 0) -> Any:
    """Return the blocks of vectors with a progress bar over them."""
    total = -(-len(source) // VECTORS_PER_READ)
    return tqdm(
        source.blocks(start),
        desc=what,
        total=total,
        initial=start // VECTORS_PER_READ,
        unit="block",
        disable=not progress,
    )


def write_vectors(path: Path, source: VectorSource, dtype: str, *, progress: bool) -> None:
    """Write all vectors as an `.npy` file.

    Args:
        path: The file.
        source: The vectors.
        dtype: `float32` or `float16`.
        progress: Show a progress bar.
    """
    with finished(path) as part:
        array = open_reserved(part, dtype, (len(source), source.dim))
        start = 0
        for block in blocks(source, "vectors", progress=progress):
            # Dot products of such vectors would overflow anyway; clipped they stay the largest.
            values = block if dtype == "float32" else block.clip(-_FLOAT16_MAX, _FLOAT16_MAX)
            array[start : start + len(block)] = values
            start += len(block)
        array.flush()


def sampled(source: VectorSource) -> np.ndarray:
    """Return the vectors to train on, drawn uniformly with a fixed seed."""
    if len(source) <= MAX_TRAINING_VECTORS:
        return source.take(np.arange(len(source)))
    rows = np.random.default_rng(0).choice(len(source), MAX_TRAINING_VECTORS, replace=False)
    return source.take(np.sort(rows))


def save(index: Any, path: Path, *, binary: bool = False) -> None:
    """Write a FAISS index.

    Raises:
        IndexingError: The disk is full.
    """
    faiss = need("faiss")
    try:
        with finished(path) as part:
            (faiss.write_index_binary if binary else faiss.write_index)(index, str(part))
    except RuntimeError as error:  # FAISS has one type for all errors
        reason = " ".join(str(error).split())[-200:]
        free = shutil.disk_usage(path.parent).free
        raise IndexingError(
            f"{path} cannot be written ({reason}); {free:,} bytes are free there. Free disk "
            "space and run the command again."
        ) from error


def trained(folder: Path, source: VectorSource, untrained: Callable[[], Any], like: Path | None) -> Any:
    """Return an empty index with trained quantizers; it is kept in the folder for segments that are added.

    Args:
        folder: The segment's folder.
        source: The vectors; a sample of them is used for training.
        untrained: Creates the untrained index.
        like: Folder of a segment whose trained index is used instead.
    """
    faiss = need("faiss")
    path = folder / TRAINED_INDEX
    if like is not None and not path.is_file():
        save(faiss.read_index(str(like / TRAINED_INDEX)), path)
    if path.is_file():
        return faiss.read_index(str(path))
    index = untrained()
    index.train(sampled(source))
    save(index, path)
    return index


def add_all(index: Any, folder: Path, source: VectorSource, what: str, *, progress: bool) -> None:
    """Add all vectors to a trained index, and write it to the segment's folder."""
    for block in blocks(source, what, progress=progress):
        index.add(block)
    save(index, folder / INDEX)
