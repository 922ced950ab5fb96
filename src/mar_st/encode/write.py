"""Writing vectors from another source as a folder of vectors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mar_st.encode.codes import check_type
from mar_st.encode.folder import (
    MANIFEST,
    SHARD_ROWS,
    SHARDS,
    VectorFolder,
    VectorsError,
    shard_entry,
    text_digests,
    write_manifest,
)
from mar_st.encode.shards import write_shard
from mar_st.files import make_folder, move_file, move_folder

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_vectors(
    out: str | Path,
    ids: Sequence[str],
    vectors: np.ndarray,
    *,
    model: str | None = None,
    space: str | None = None,
    dtype: str = "float32",
    texts: Sequence[str] | None = None,
    normalised: bool | None = None,
    similarity: str = "cosine",
    shard: int = SHARD_ROWS,
) -> VectorFolder:
    """Write vectors from another source as a folder of vectors.

    Args:
        out: The folder; it must hold no vectors yet.
        ids: Ids, all different.
        vectors: `(len(ids), dim)` floats.
        model: Name of the model that computed the vectors.
        space: Digest of its document space, if it is known.
        dtype: Type to store the vectors in.
        texts: The texts, from which digests are computed; without them, the digests are zeros.
        normalised: Whether the vectors have length 1; by default this is measured.
        similarity: `cosine` or `dot`.
        shard: Vectors per shard.

    Raises:
        VectorsError: Lengths differ, ids repeat, an id or text is not Unicode, there are no dimensions,
            `shard` is not positive, or the folder holds vectors.
        MarError: The type is unknown, or a value is not finite.
    """
    root, vectors = Path(out), np.asarray(vectors)
    names = [str(name) for name in ids]
    if vectors.ndim != 2 or len(vectors) != len(names) or (texts is not None and len(texts) != len(names)):
        raise VectorsError(
            f"Expected a vector (and a text) for each of {len(names)} ids; the vectors have shape "
            f"{vectors.shape}{'' if texts is None else f', the texts are {len(texts)}'}."
        )
    if not vectors.shape[1] or shard < 1:
        raise VectorsError(
            f"dim and shard are at least 1; the vectors have shape {vectors.shape}, shard is {shard}."
        )
    if len(set(names)) < len(names):
        raise VectorsError("The ids repeat; every document needs an id of its own.")
    for text in (*names, *(texts or ())):
        if not _is_unicode(text):
            raise VectorsError(f"{ascii(text)[:80]} holds half of a surrogate pair; correct the id or text.")
    if (root / SHARDS).exists() or (root / MANIFEST).exists():
        raise VectorsError(f"{root} holds vectors already; give another folder.")
    check_type(dtype, vectors.shape[1])
    entries, unit = [], bool(names)
    make_folder(root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".", suffix=".part") as own:
        part = Path(own)
        (part / SHARDS).mkdir()
        for number, start in enumerate(range(0, len(names), shard)):
            rows = slice(start, start + shard)
            block = vectors[rows].astype(np.float32, copy=False)
            digests = text_digests(texts[rows]) if texts is not None else [bytes(16)] * len(block)
            write_shard(part / SHARDS, number, names[rows], digests, block, dtype)
            entries.append(shard_entry(part, number))
            unit = unit and float(np.abs(np.linalg.norm(block, axis=1) - 1).max()) < 1e-3
        settings = {
            "dim": vectors.shape[1], "dtype": dtype, "normalised": unit if normalised is None else normalised,
            "similarity": similarity, "prompt": "",
        }  # fmt: skip
        write_manifest(
            part,
            model={"name": model, "digest": None},
            space=space,
            settings=settings,
            corpus={"path": None, "digest": None},
            shards=entries,
        )
        move_folder(part / SHARDS, root / SHARDS)
        move_file(part / MANIFEST, root / MANIFEST)
    return VectorFolder.open(root)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
