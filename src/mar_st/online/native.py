"""Runtime `native`: the encoder of `encoder.cpp`, its weights and its calls from Python."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

import numpy as np

from mar_st.files import load_array, read_json
from mar_st.kernels.build import CompileError, close_with, library
from mar_st.kernels.processor import processor
from mar_st.online.description import Description, HeadModule, Layer, Model
from mar_st.online.protocol import EncoderError

#: Processor features that the kernels require, as Linux names them.
REQUIRED_FLAGS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "fma"})
_COMPILER_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma")

_I32 = ctypes.c_int32


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL:
    """Return the compiled encoder.

    Raises:
        EncoderError: The processor lacks required instructions, or compilation fails.
    """
    missing = sorted(REQUIRED_FLAGS - processor().flags)
    if missing:
        raise EncoderError(
            f"The native encoder needs Linux and a processor with AVX-512 VNNI; this one has no "
            f"{', '.join(missing)}. Use an OpenVINO or ONNX variant (`mar export --format openvino-int8`)."
        )
    try:
        compiled = library(Path(__file__).parents[1] / "kernels" / "encoder.cpp", _COMPILER_FLAGS)
    except CompileError as error:
        raise EncoderError(f"The native encoder needs a C++ compiler: {error}") from error
    pointer = ctypes.c_void_p
    compiled.mar_native_open.argtypes = [pointer, ctypes.POINTER(Model), pointer, pointer, _I32]
    compiled.mar_native_open.restype = pointer
    compiled.mar_native_close.argtypes = [pointer]
    compiled.mar_native_close.restype = None
    compiled.mar_native_run.argtypes = [
        pointer, pointer, pointer, pointer, _I32, _I32, pointer, pointer, _I32, _I32, pointer,
    ]  # fmt: skip
    compiled.mar_native_run.restype = _I32
    sizes = (_I32 * 3)()
    compiled.mar_native_sizes(sizes)
    expected = [ctypes.sizeof(kind) for kind in (Model, Layer, HeadModule)]
    if list(sizes) != expected:
        raise EncoderError(f"encoder.cpp has structures of {list(sizes)} bytes, Python of {expected}.")
    return compiled


class NativeRuntime:
    """An encoder with 8-bit weights and activations, see `encoder.cpp`.

    Args:
        path: The `.json` file that describes the graph; the weights are in the `.npy` file of the same name,
            which is mapped into memory.
        precision: `int8`.
        threads: Threads per call.

    Raises:
        EncoderError: The runtime cannot run on this machine.
    """

    def __init__(self, path: Path, precision: str, threads: int) -> None:
        del precision
        self._kernels = kernels()
        try:
            content = read_json(path)
            self._file = _weights(path.with_suffix(".npy"))
            description = Description.of(content, self._file.nbytes)
        except (ValueError, OSError, EncoderError) as error:
            raise EncoderError(f"{path} cannot be used: {error}. Export the encoder again.") from error
        model, self._tables = description.model, description.tables
        self._hidden, self._dim = int(model.hidden), int(model.dim)
        self._encoder = self._kernels.mar_native_open(
            self._file.ctypes.data, ctypes.byref(model), description.layers, description.steps, threads
        )
        if not self._encoder:
            raise EncoderError(f"{path.name} could not be opened: no memory, or no more threads ({threads}).")
        close_with(self, self._kernels.mar_native_close, self._encoder)

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Compute vectors as `Runtime.run`; padding, which other runtimes use to limit shapes, is skipped."""
        segments, pool = inputs["segments"], inputs["pool"]
        rows = max(1, int(np.count_nonzero(segments >= 0)))
        starts = np.flatnonzero(np.diff(segments[:rows], prepend=-2)).astype(np.int32)
        starts = np.append(starts, np.int32(rows))
        single = pool.ndim == 1
        embeddings = np.ascontiguousarray(inputs["embeddings"], dtype=np.float32)
        positions = np.ascontiguousarray(inputs["positions"], dtype=np.int64)
        if len(positions) < rows or positions[:rows].min() < 0 or positions[:rows].max() >= self._tables:
            raise EncoderError(f"A text has more positions than the {self._tables} that were exported.")
        if embeddings.ndim != 2 or len(embeddings) < rows or embeddings.shape[1] != self._hidden:
            raise EncoderError(
                f"Token embeddings have shape {embeddings.shape}; the encoder takes {rows} of {self._hidden} "
                "numbers. Export the encoder again."
            )
        pool = np.ascontiguousarray(pool, dtype=np.int64 if single else np.float32)
        if (single and not ((pool >= 0) & (pool < rows)).all()) or (not single and pool.shape[1] < rows):
            raise EncoderError(f"Pooling asks for more than the {rows} tokens that there are.")
        vectors = np.empty((len(pool), self._dim), dtype=np.float32)
        state = self._kernels.mar_native_run(  # releases the interpreter's lock
            self._encoder, embeddings.ctypes.data, positions.ctypes.data, starts.ctypes.data, rows,
            len(starts) - 1, pool.ctypes.data if single else None, None if single else pool.ctypes.data,
            0 if single else pool.shape[1], len(pool), vectors.ctypes.data,
        )  # fmt: skip
        if state:
            raise MemoryError(f"There is not enough memory for {rows} tokens.")
        return vectors


def _weights(path: Path) -> np.ndarray:
    """Map the file of weights; it must hold bytes that begin at a cache line.

    Raises:
        EncoderError: The file has other content.
        ValueError: The file is not a `.npy` file, or is truncated.
        OSError: The file cannot be read.
    """
    weights = load_array(path, mapped=True)
    if not isinstance(weights, np.memmap) or weights.dtype != np.uint8 or weights.ndim != 1:
        raise EncoderError(f"{path.name} is not an array of bytes")
    if weights.ctypes.data % 64:
        raise EncoderError(f"the weights in {path.name} do not begin at a cache line")
    return weights
