"""The folder of an exported encoder, as small as its format allows."""

from __future__ import annotations

import json

import pytest

from mar_st.online.listing import entry_of

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
        "pooling": "cls", "positions": 0, "filler": 0,
        "truncation": "right", "variants": variants, "chosen": "native-int8",
    }  # fmt: skip
    (folder / "export.json").write_text(json.dumps(content), encoding="utf-8")
    return ExportFolder(folder)
