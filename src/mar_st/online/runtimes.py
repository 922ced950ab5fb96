"""The runtimes that compute an exported graph."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mar_st.online.packages import optional
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from mar_st.online.listing import Variant


#: Limits of this process's container.
_CGROUP = Path("/sys/fs/cgroup")


class Runtime(Protocol):
    """A loaded graph; one call at a time."""

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Vectors of a pack, float32 `(texts or more, dim)`; valid until the next call."""


@cache
def _core() -> Any:
    """OpenVINO's core, one for the life of the process.

    OpenVINO 2026.4 gives the thread that creates a core a stack for signal handlers. When the second of two
    cores is deleted, the thread gets the stack of the first back, which is freed by then: the next signal
    ends the process.
    """
    return optional("openvino").Core()


class OpenVINORuntime:
    """A graph in OpenVINO.

    Args:
        path: The `.xml` file; its weights are mapped into memory.
        options: `inference_precision` (`f32`, `bf16`), `dynamic_quantization_group` (0 computes with the
            weights' values as floats).
        threads: Threads of a call.
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
        found = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        vectors: np.ndarray = found[0]
        return vectors


class OnnxRuntime:
    """A graph in ONNX Runtime.

    Args:
        path: The `.onnx` file; weights beside it are mapped into memory.
        options: None are known.
        threads: Threads of a call.
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


def _native(path: Path, options: dict[str, Any], threads: int) -> Runtime:
    from mar_st.online.native_runtime import NativeRuntime

    return NativeRuntime(path, options, threads)


RUNTIMES: dict[str, Callable[[Path, dict[str, Any], int], Runtime]] = {
    "openvino": OpenVINORuntime,
    "onnx": OnnxRuntime,
    "native": _native,
}


def open_runtime(folder: Path, variant: Variant, threads: int | None) -> Runtime:
    """Load the graph of a variant.

    Raises:
        EncoderError: The runtime is not known or not installed.
    """
    if variant.runtime not in RUNTIMES:
        raise EncoderError(f"{variant.graph} is for {variant.runtime!r}; known are {', '.join(RUNTIMES)}.")
    return RUNTIMES[variant.runtime](folder / variant.graph, variant.options, threads or processors())


def processors() -> int:
    """Processors that this process may use; a container's limit of processor time counts, rounded up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, math.ceil(_share(_CGROUP) or count)))


def _share(folder: Path) -> float | None:
    """Processors that a control group (version 2 or 1) may use at a time; `None` where it has no limit."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = (
                (folder / "cpu" / f"cpu.cfs_{name}_us").read_text(encoding="ascii").strip()
                for name in ("quota", "period")
            )
        found = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # not there, or "max"
        return None
    return found if found > 0 else None
