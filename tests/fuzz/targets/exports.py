"""Exported encoders with one changed file: listings of graphs, and complete lookup encoders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError
from mar_st.files import entry_of
from mar_st.integrity.verify import verify
from mar_st.online.listing import Listing
from mar_st.online.lookup import LookupListing, NumpyLookupEncoder
from tests.fuzz.engine import Target
from tests.fuzz.folders import Changed, relist_files

if TYPE_CHECKING:
    from pathlib import Path

_FEATURES = ["头", "疼", "头疼", "a", "ab", "\tabc"]


def _lookup(folder: Path) -> None:
    """A lookup encoder as `mar export --format numpy` writes it."""
    folder.mkdir()
    values = np.random.default_rng(0).standard_normal(2 * 6 + 4).astype("<f4")
    table = np.arange(24, dtype=np.int8)
    (folder / "lookup.bin").write_bytes(values.tobytes() + table.tobytes())
    (folder / "features.json").write_text(json.dumps(_FEATURES), encoding="utf-8")
    LookupListing(
        model={"source": "m", "identity": "0" * 64, "query": "query"},
        files={name: entry_of(folder / name) for name in ("lookup.bin", "features.json")},
        features=6, dim=4, normalised=True, similarity="cosine", lengths=[1, 2], max_length=64,
        precision="int8",
        prompts={"query": ""},
    ).write(folder)  # fmt: skip


def _graph(folder: Path) -> None:
    """The listing of an encoder with a graph, beside files that are not opened here."""
    folder.mkdir()
    names = ("graph.onnx", "tokenizer.json", "embeddings.float32.npy")
    for name in names:
        (folder / name).write_bytes(b"x")
    content = {
        "format": "mar-export", "version": 1, "model": {"source": "m", "identity": "0" * 64,
        "model_type": "bert"},
        "files": {name: entry_of(folder / name) for name in names}, "dim": 8, "normalised": True,
        "similarity": "cosine",
        "max_length": 64, "prompts": {"query": "q: "}, "pooling": {"mode": "cls", "include_prompt": True},
        "positions": 0,
        "filler": 0, "truncation": "right", "chosen": "onnx-fp32",
        "variants": {"onnx-fp32": {"runtime": "onnx", "precision": "fp32", "graph": "graph.onnx",
        "files": ["graph.onnx"],
                                   "table": "float32", "options": {}, "report": {"p50_ms": 1.0}}},
    }  # fmt: skip
    (folder / "export.json").write_text(json.dumps(content), encoding="utf-8")


def prepare(folder: Path) -> Target:
    """Set up the target: changed folders of exported encoders."""
    _lookup(folder / "lookup-whole")
    _graph(folder / "graph-whole")
    lookup = Changed(folder / "lookup-whole", folder / "lookup")
    graph = Changed(folder / "graph-whole", folder / "graph")

    def read_lookup(place: Path) -> str:
        verify(place)
        encoder = NumpyLookupEncoder.open(place)
        vectors = encoder.encode(["头疼 abc", "", "文" * 100])
        assert vectors.shape == (3, encoder.dim)
        encoder.count_tokens(["头疼"])
        return f"lookup {bool(encoder.identity)}"

    def read_graph(place: Path) -> str:
        verify(place)
        listing = Listing.read(place)
        variants = [listing.choose(name) for name in ("auto", listing.chosen)]
        variants += [listing.choose(variant.runtime) for variant in listing.variants.values()]
        return f"graph {len({listing.identity(variant) for variant in variants}) > 1}"

    def check(data: bytes) -> str:
        if data[:1] == b"l":
            return lookup.with_file(data[1:], read_lookup, relist_files)
        return graph.with_file(data[1:], read_graph, relist_files)

    seeds = [b"l" + seed for seed in lookup.seeds()] + [b"g" + seed for seed in graph.seeds()]
    return Target(
        seeds,
        check,
        (MarError,),
        named=True,
        words=(b'"lengths"', b'"dim"', b'"int8"', b'"fp16"', b'"files"'),
    )
