"""Folders of exported encoders, as small as their formats allow."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.online.listing import entry_of
from mar_st.online.lookup import LookupListing

#: Features of the lookup encoder: runs of one and two characters, and a word.
FEATURES = ["头", "疼", "头疼", "a", "\tabc"]
PROMPTS = {"query": "", "other": "x"}


class ExportFolder:
    """A folder with an `export.json` that a test changes."""

    def __init__(self, path):
        self.path = path
        self.listing = path / "export.json"

    def change(self, **fields):
        """Set fields of the listing, in nested objects as `outer__inner`; `...` deletes one."""
        content = json.loads(self.listing.read_text(encoding="utf-8"))
        for name, value in fields.items():
            *way, last = name.split("__")
            part = content
            for step in way:
                part = part[step]
            if value is ...:
                del part[last]
            else:
                part[last] = value
        self.listing.write_text(json.dumps(content), encoding="utf-8")

    def replace(self, name, content):
        """Replace a file, and its entry in the listing."""
        (self.path / name).write_bytes(content)
        self.change(files={**self.files(), name: entry_of(self.path / name)})

    def files(self):
        return json.loads(self.listing.read_text(encoding="utf-8"))["files"]


@pytest.fixture
def lookup_folder(tmp_path):
    """A lookup encoder with random numbers."""
    folder = tmp_path / "lookup"
    folder.mkdir()
    values = np.random.default_rng(0).standard_normal(5 + 4 + 5).astype("<f4")
    values[9:] = np.abs(values[9:]) / 50  # scales
    table = np.random.default_rng(1).integers(-127, 128, 5 * 4).astype(np.int8)
    (folder / "lookup.bin").write_bytes(values.tobytes() + table.tobytes())
    (folder / "features.json").write_text(json.dumps(FEATURES), encoding="utf-8")
    LookupListing(
        model={"source": "m", "identity": "0" * 64, "query": "query-lookup"},
        files={name: entry_of(folder / name) for name in ("lookup.bin", "features.json")},
        features=5, dim=4, normalised=True, similarity="cosine", lengths=[1, 2], max_length=8,
        prompts=PROMPTS, space="s" * 64,
    ).write(folder)  # fmt: skip
    return ExportFolder(folder)


@pytest.fixture
def graph_folder(tmp_path):
    """The listing of an encoder in three variants, beside files that only the listing looks at."""
    folder = tmp_path / "graph"
    folder.mkdir()
    graphs = ("native-int8.json", "onnx-fp32.onnx", "onnx-int8.onnx")
    names = [*graphs, "tokenizer.json", "embeddings.npy"]
    for name in names:
        (folder / name).write_bytes(b"content of " + name.encode())
    variants = {
        name.partition(".")[0]: {
            "runtime": name.partition("-")[0], "precision": name.partition("-")[2].partition(".")[0],
            "graph": name, "files": [name], "report": {"p50_ms": speed},
        }
        for name, speed in zip(graphs, (2.0, 9.0, 4.0), strict=True)
    }  # fmt: skip
    content = {
        "format": "mar-export",
        "model": {"source": "m", "identity": "0" * 64, "query": "query", "model_type": "bert"},
        "files": {name: entry_of(folder / name) for name in names},
        "dim": 8, "normalised": True, "similarity": "cosine", "max_length": 64, "prompts": PROMPTS,
        "pooling": {"mode": "cls", "include_prompt": True, "special": [0]}, "positions": 0, "filler": 0,
        "truncation": "right", "variants": variants, "chosen": "native-int8",
    }  # fmt: skip
    (folder / "export.json").write_text(json.dumps(content), encoding="utf-8")
    return ExportFolder(folder)
