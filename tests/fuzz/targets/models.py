"""Saved models with a changed listing or digest: reading their parts, and `mar verify`."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files import write_digests
from mar_st.integrity.verify import verify
from mar_st.model.packed import verify as verify_packed
from mar_st.modules.layout import listed_modules, query_routes, saved_chain
from tests.fuzz.engine import Target
from tests.fuzz.folders import Changed, relist_files

if TYPE_CHECKING:
    from pathlib import Path


def _whole(folder: Path) -> None:
    """The files of a MAR without its tokenizers."""
    parts = ("query_0_Transformer", "query_1_Normalize", "document_0_Transformer")
    types = {name: "sentence_transformers.models." + name.rpartition("_")[2] for name in parts}
    structure = {"query": list(parts[:2]), "document": [parts[2]], "query-small": [parts[0]]}
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for name in parts:
        (folder / "0_Router" / name).mkdir(parents=True)
        (folder / "0_Router" / name / "config.json").write_text('{"dim": 2}', encoding="utf-8")
        (folder / "0_Router" / name / "model.safetensors").write_bytes(
            struct.pack("<Q", len(header)) + header + bytes(8)
        )
    modules = [{"idx": 0, "name": "0", "path": "0_Router", "type": "sentence_transformers.models.Router"}]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "0_Router" / "router_config.json").write_text(
        json.dumps({"types": types, "structure": structure, "parameters": {"default_route": "query"}}),
        encoding="utf-8",
    )
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {}}', encoding="utf-8")


def prepare(folder: Path) -> Target:
    """Set up the target: changed model folders."""
    _whole(folder / "whole")
    plain = Changed(folder / "whole", folder / "plain")
    write_digests(folder / "whole")
    with_digests = Changed(folder / "whole", folder / "with-digests")
    packed = folder / "packed"
    packed.mkdir()
    (packed / "packed.safetensors").write_bytes(b"x")

    def read(place: Path) -> str:
        whole = verify(place).whole
        listed_modules(place)
        routes = query_routes(place)
        for route in [*routes, "document"]:
            saved_chain(place, route)
        return f"model {len(routes)} {whole}"

    def check(data: bytes) -> str:
        if data[:1] == b"p":
            (packed / "packed.json").write_bytes(data.partition(b"\n")[2])
            verify_packed(packed)
            return "packed"
        changed = with_digests if data[:1] == b"d" else plain
        return changed.with_file(data[1:], read, relist_files)

    content = {"format": 1, "digest": "0" * 64, "weights": {"model.safetensors": {"a": ["a", "b"]}}}
    seeds = [b"d" + seed for seed in with_digests.seeds()] + [b"n" + seed for seed in plain.seeds()]
    words = (
        b'"structure"',
        b'"types"',
        b'"further"',
        b'"path"',
        b"query-",
        b"../",
        b'"files"',
        b'"sha256"',
        b"0_Router",
    )
    return Target(
        [*seeds, b"p\n" + json.dumps(content).encode()], check, (MarError,), named=True, words=words
    )
