"""Index folders with one changed file; the digests match it, as an attacker can write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError
from mar_st.files import entry_of
from mar_st.index import Index, build_index, delete
from mar_st.integrity.verify import verify
from tests.fuzz.engine import Target
from tests.fuzz.folders import Changed
from tests.mar_st.index.conftest import make_library

if TYPE_CHECKING:
    from pathlib import Path


def _relist(place: Path, name: str) -> None:
    path = place / "manifest.json"
    if name == "manifest.json":
        return
    content = json.loads(path.read_text(encoding="utf-8"))
    below = name.removeprefix("segments/")
    for segment in content["segments"]:
        prefix = f"{segment['name']}/"
        if below.startswith(prefix) and below.removeprefix(prefix) in segment["files"]:
            segment["files"][below.removeprefix(prefix)] = entry_of(place / name)
        if segment["deleted"] and segment["deleted"]["file"] == below:
            segment["deleted"] |= entry_of(place / name)
    path.write_text(json.dumps(content), encoding="utf-8")


def prepare(folder: Path) -> Target:
    """Set up the target: changed index folders."""
    library = make_library(folder / "library", count=40, dim=8)
    build_index(
        library.open,
        folder / "whole",
        corpus=library.corpus,
        kind="exact",
        tokens="char-bigram",
        progress=False,
    )
    delete(folder / "whole", ["d3"])
    for left in (folder / "whole").glob(".*"):
        left.unlink()
    changed = Changed(folder / "whole", folder / "index")
    vector = library.vectors[:2]

    def read(place: Path) -> str:
        report = verify(place)
        index = Index.open(place)
        result = index.find(vector, 5, None)
        assert not np.isnan(result.scores).any()
        for keys in result.keys:
            index.documents(keys)
        for segment in index.segments:  # type: ignore[attr-defined]
            assert all(isinstance(text, str) for text in segment.documents.texts(0, 50))
        index.search(vector, 5, where={"year": {"gte": 2005}, "department": "儿科"})
        if index.has_words:
            index.find_words(["高血压怎么办"], 5, None)
        return f"searched {report.whole}"

    return Target(
        changed.seeds(), lambda data: changed.with_file(data, read, _relist), (MarError,), named=True,
        words=(b"000001", b"segments/", b"../", b'"files"', b'"deleted"', b'"kind"', b"exact", b"hnsw"),
    )  # fmt: skip
