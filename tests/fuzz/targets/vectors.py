"""Folders of vectors with one changed file; the digests match it, as an attacker can write them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from mar_st.encode import VectorFolder, write_vectors
from mar_st.errors import MarError
from mar_st.integrity.verify import verify
from tests.fuzz.engine import Target
from tests.fuzz.folders import Changed

if TYPE_CHECKING:
    from pathlib import Path


def _relist(place: Path, name: str) -> None:
    path = place / "manifest.json"
    if name == "manifest.json":
        return
    content = json.loads(path.read_text(encoding="utf-8"))
    below = name.removeprefix("shards/")
    for shard in content["shards"]:
        if below in shard["files"]:
            was = shard["files"][below]
            digest = hashlib.sha256((place / name).read_bytes()).hexdigest()
            shard["files"][below] = digest if isinstance(was, str) else was
            for key in ("bytes", "samples", "sizes", "sample"):
                shard.pop(key, None)
    path.write_text(json.dumps(content), encoding="utf-8")


def prepare(folder: Path) -> Target:
    """Set up the target: changed folders of vectors."""
    values = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)
    write_vectors(
        folder / "whole", [f"d{row}" for row in range(12)], values, shard=7, dtype="int8", normalised=False
    )
    changed = Changed(folder / "whole", folder / "vectors")

    def read(place: Path) -> str:
        whole = verify(place).whole
        opened = VectorFolder.open(place)
        for ids, vectors in opened.blocks(5):
            assert vectors.shape == (len(ids), opened.dim)
        assert len(opened.text_digests) == len(opened)
        opened[[0, len(opened) - 1]]
        return f"read {whole}"

    return Target(
        changed.seeds(), lambda data: changed.with_file(data, read, _relist), (MarError,), named=True,
        words=(b"__metadata__", b"data_offsets", b'"shape"', b'"F32"', b'"I8"', b'"U8"', b"vectors", b"scale",
        b"000000", b"check"),
    )  # fmt: skip
