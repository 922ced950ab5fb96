"""A small corpus, and its encoding with small shards."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.encode.encoding import encode_corpus
from mar_st.encode.folder import VectorFolder
from tests.mar_st.conftest import ALPHABET

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.encode.settings import EncodeSettings

#: Of default vectors of these small models, whose weights are large.
ATOL = 1e-4


def rows(number: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(0)
    documents = []
    for place in range(number):
        text = "".join(rng.choice(list(ALPHABET), min(1 + rng.geometric(0.1), 40)))
        documents.append({"_id": f"d{place}", "title": "头疼" if place % 3 == 0 else "", "text": text})
    return documents


def encode(
    model: Path, corpus: Path, out: Path, settings: EncodeSettings | None = None, **options: Any
) -> VectorFolder:
    return encode_corpus(model, corpus, out, settings, shard=16, show_progress=False, **options)


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
