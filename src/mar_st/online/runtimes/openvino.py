"""Runtime `openvino`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from mar_st.kernels.processor import processors
from mar_st.online.packages import optional
from mar_st.online.runtime import Runtime, runtime

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


@cache
def _core() -> Any:
    """Return OpenVINO's core, one per process.

    OpenVINO 2026.4 gives the thread that creates a core a stack for signal handlers. When the second of two
    cores is deleted, the thread gets back the stack of the first, which has been freed: the next signal
    kills the process.
    """
    return optional("openvino").Core()


@runtime("openvino")
class OpenVINORuntime(Runtime):
    """A graph in OpenVINO.

    Args:
        path: The `.xml` file; its weights are mapped into memory.
        options: `inference_precision` (`f32`, `bf16`), `dynamic_quantization_group` (0 computes with weights
            as floats).
        threads: Threads per call.
    """

    def __init__(self, path: Path, options: dict[str, Any], threads: int) -> None:
        core = _core()
        precision = options.get("inference_precision", "f32")
        if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            precision = "f32"
        if options.get("float_weights") and precision == "bf16" and threads < 2:
            # OpenVINO 2026.4 divides by zero in its fused gated layer, made for two threads or more.
            threads = 2
            if processors() < 2:
                precision = "f32"
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": precision,
            "ENABLE_MMAP": "YES",
        }
        group = options.get("dynamic_quantization_group")
        if group is not None:
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(group)
        self._request = core.compile_model(str(path), "CPU", settings).create_infer_request()

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Compute vectors, as `Runtime.run`."""
        outputs = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        vectors: np.ndarray = outputs[0]
        return vectors
