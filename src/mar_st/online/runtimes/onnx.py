"""Runtime `onnx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.online.packages import optional
from mar_st.online.runtime import Runtime, runtime

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


@runtime("onnx")
class OnnxRuntime(Runtime):
    """A graph in ONNX Runtime.

    Args:
        path: The `.onnx` file; its external weights are mapped into memory.
        options: None are supported.
        threads: Threads per call.
    """

    def __init__(self, path: Path, options: dict[str, Any], threads: int) -> None:
        del options
        ort = optional("onnxruntime")
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        self._session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Compute vectors, as `Runtime.run`."""
        vectors: np.ndarray = self._session.run(None, inputs)[0]
        return vectors
