"""The runtimes that compute an exported graph: native, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from mar_st.errors import MarError
from mar_st.files import load_package, one_line
from mar_st.kernels.processor import processors
from mar_st.online.native import NativeRuntime
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from mar_st.online.listing import ExportVariant


class Runtime(Protocol):
    """A loaded graph; one call at a time. It is made of the graph's file, its precision, and threads."""

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the vectors of a pack, float32 `(texts or more, dim)`; valid until the next call."""


def optional(name: str, extra: str = "online") -> Any:
    """Import a package that an extra of this distribution installs.

    OpenVINO's packages send telemetry as soon as they are imported, unless the telemetry package cannot be
    imported. A process that sees medical queries must not send any.

    Raises:
        MarError: The package is not installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return load_package(name, extra=extra)


class OnnxRuntime:
    """A graph in ONNX Runtime; its external weights are mapped into memory."""

    def __init__(self, path: Path, precision: str, threads: int) -> None:
        del precision
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


@cache
def _core() -> Any:
    """Return OpenVINO's core, one per process.

    OpenVINO 2026.4 gives the thread that creates a core a stack for signal handlers. When the second of two
    cores is deleted, the thread gets back the stack of the first, which has been freed: the next signal
    kills the process.
    """
    return optional("openvino").Core()


class OpenVINORuntime:
    """A graph in OpenVINO; its weights are mapped into memory.

    With int8, 128 columns of a weight matrix share the scale of their activations.
    """

    def __init__(self, path: Path, precision: str, threads: int) -> None:
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_MMAP": "YES",
        }
        if precision == "int8":
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "128"
        self._request = _core().compile_model(str(path), "CPU", settings).create_infer_request()

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Compute vectors, as `Runtime.run`."""
        vectors: np.ndarray = self._request.infer(inputs, share_inputs=True, share_outputs=True)[0]
        return vectors


_RUNTIMES: dict[str, Any] = {"native": NativeRuntime, "onnx": OnnxRuntime, "openvino": OpenVINORuntime}


def open_runtime(folder: Path, variant: ExportVariant, threads: int | None) -> Runtime:
    """Load the graph of a variant.

    Raises:
        EncoderError: The runtime is not known, or cannot load the graph.
        MarError: The runtime is not installed.
    """
    if variant.runtime not in _RUNTIMES:
        raise EncoderError(f"{variant.graph} is for {variant.runtime!r}; known are {', '.join(_RUNTIMES)}.")
    path = folder / variant.graph
    try:
        opened: Runtime = _RUNTIMES[variant.runtime](path, variant.precision, threads or processors())
    except MarError:
        raise
    except Exception as error:  # the runtimes have exceptions of their own for damaged and unsupported graphs
        raise EncoderError(
            f"{variant.runtime} cannot load {path} ({type(error).__name__}: {one_line(error)}). Export the "
            "encoder again, or choose another variant."
        ) from error
    return opened
