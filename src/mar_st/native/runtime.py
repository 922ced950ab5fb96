"""The encoder of `encoder.cpp` from Python: its description, its file of weights, its calls."""

from __future__ import annotations

import ctypes
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.encode.processor import processor
from mar_st.native.build import BuildError, close_with, library
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the kernels need of a processor, as Linux names it.
NEEDS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "fma"})
_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma")

#: As in `simd.hpp`.
ACTIVATIONS = {"identity": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "relu": 4, "tanh": 5}
#: As in `encoder.cpp`.
STEPS = {"linear": 0, "norm": 1, "unit": 2}

_I32, _I64, _F32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float


class Linear(ctypes.Structure):
    """A layer; places in the file, -1 for none."""

    _fields_ = (("weight", _I64), ("scales", _I64), ("bias", _I64), ("inputs", _I32), ("outputs", _I32))


class Norm(ctypes.Structure):
    """A norm; `absent` where nothing is normalised."""

    _fields_ = (("weight", _I64), ("bias", _I64), ("absent", _I32), ("unused", _I32))


class Layer(ctypes.Structure):
    """A layer of the transformer."""

    _fields_ = (
        ("qkv", Linear), ("out", Linear), ("up", Linear), ("down", Linear),
        ("before", Norm), ("after", Norm), ("query", Norm), ("key", Norm),
        ("cosines", _I64), ("sines", _I64), ("window", _I32), ("unused", _I32),
    )  # fmt: skip


class Step(ctypes.Structure):
    """What comes after pooling."""

    _fields_ = (
        ("kind", _I32), ("activation", _I32), ("linear", Linear), ("norm", Norm), ("eps", _F32),
        ("unused", _I32),
    )  # fmt: skip


class Model(ctypes.Structure):
    """The whole encoder."""

    _fields_ = (
        ("hidden", _I32), ("inner", _I32), ("head_size", _I32), ("heads", _I32), ("key_heads", _I32),
        ("layers", _I32), ("steps", _I32), ("dim", _I32), ("activation", _I32), ("gated", _I32),
        ("pre_norm", _I32), ("rms", _I32), ("causal", _I32), ("unused", _I32), ("eps", _F32), ("scale", _F32),
        ("types", _I64), ("positions", _I64), ("embeddings", Norm), ("last", Norm),
    )  # fmt: skip


def _linear(layer: dict[str, Any], inputs: int, outputs: int) -> Iterator[tuple[int, int]]:
    if (layer["inputs"], layer["outputs"]) != (inputs, outputs):
        raise KeyError("inputs and outputs")
    if min(layer["weight"], layer["scales"]) < 0:
        raise KeyError("weight and scales")
    rows = -(-outputs // 32) * 32
    yield layer["weight"], rows * (-(-inputs // 16) * 16)
    yield layer["scales"], rows * (-(-inputs // 128)) * 4
    yield layer["bias"], outputs * 4


def _norm(entry: dict[str, Any] | None, width: int) -> Iterator[tuple[int, int]]:
    if entry and not entry["absent"]:
        yield entry["weight"], width * 4
        yield entry["bias"], width * 4


def _spans(content: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Where in the file a description says that arrays are, and the bytes that its sizes say they have."""
    model, tables = content["model"], content["tables"]
    hidden, inner, size = model["hidden"], model["inner"], model["head_size"]
    queries, keys = model["heads"] * size, model["key_heads"] * size
    if model["heads"] % model["key_heads"] or min(hidden, inner, size) < 1:
        raise KeyError("sizes")
    yield model.get("types", -1), hidden * 4
    yield model.get("positions", -1), hidden * tables * 4
    for layer in content["layers"]:
        yield from _linear(layer["qkv"], hidden, queries + 2 * keys)
        yield from _linear(layer["out"], queries, hidden)
        yield from _linear(layer["up"], hidden, -(-inner // 16) * 32 if model.get("gated") else inner)
        yield from _linear(layer["down"], inner, hidden)
        for name, width in (("before", hidden), ("after", hidden), ("query", size), ("key", size)):
            yield from _norm(layer.get(name), width)
        for name in ("cosines", "sines"):
            yield layer.get(name, -1), tables * (size // 2) * 4
    yield from _norm(model.get("embeddings"), hidden)
    yield from _norm(model.get("last"), hidden)
    width = hidden
    for step in content["steps"]:
        if step["kind"] == STEPS["linear"]:
            yield from _linear(step["linear"], width, step["linear"]["outputs"])
            width = step["linear"]["outputs"]
        yield from _norm(step.get("norm"), width)
    if width != model["dim"]:
        raise KeyError("dim")


def check(content: dict[str, Any], size: int) -> None:
    """Make sure that all places of a description are within its file, as nothing else is checked in C++.

    Args:
        content: The description.
        size: Bytes of the file.

    Raises:
        EncoderError: They are not, or something is missing.
    """
    try:
        for place, length in _spans(content):
            if place != -1 and not (0 <= place <= size - length and place % 64 == 0):
                raise EncoderError(f"an array of {length} bytes cannot be at byte {place} of {size}")
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise EncoderError(f"the description is broken ({error})") from error


def _filled(kind: type[ctypes.Structure], values: dict[str, Any]) -> Any:
    """A structure with these values; norms and places that are not given are absent."""
    found = kind()
    for name, form, *_ in kind._fields_:
        if issubclass(form, ctypes.Structure):
            setattr(found, name, _filled(form, values.get(name) or {"absent": 1}))
        elif name in values or form is _I64:
            setattr(found, name, values.get(name, -1))
    return found


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL:
    """The compiled encoder.

    Raises:
        EncoderError: This processor lacks what it needs, or it cannot be compiled.
    """
    missing = sorted(NEEDS - processor().flags)
    if missing:
        raise EncoderError(
            f"The native encoder needs Linux and a processor with AVX-512 VNNI; this one has no "
            f"{', '.join(missing)}. Use an OpenVINO or ONNX variant (`mar export --format openvino`)."
        )
    try:
        found = library(Path(__file__).with_name("encoder.cpp"), _FLAGS)
    except BuildError as error:
        raise EncoderError(f"The native encoder needs a C++ compiler: {error}") from error
    pointer = ctypes.c_void_p
    found.mar_native_open.argtypes = [pointer, ctypes.POINTER(Model), pointer, pointer, _I32]
    found.mar_native_open.restype = pointer
    found.mar_native_close.argtypes = [pointer]
    found.mar_native_close.restype = None
    found.mar_native_run.argtypes = [
        pointer, pointer, pointer, pointer, _I32, _I32, pointer, pointer, _I32, _I32, pointer,
    ]  # fmt: skip
    found.mar_native_run.restype = _I32
    sizes = (_I32 * 3)()
    found.mar_native_sizes(sizes)
    expected = [ctypes.sizeof(kind) for kind in (Model, Layer, Step)]
    if list(sizes) != expected:
        raise EncoderError(f"encoder.cpp has structures of {list(sizes)} bytes, runtime.py of {expected}.")
    return found


class NativeRuntime:
    """An encoder with 8-bit weights and activations, see `encoder.cpp`.

    Args:
        path: The `.json` file that describes it; the weights are in the `.npy` file of the same name, and are
            mapped into memory.
        options: None are known.
        threads: Threads of a call.

    Raises:
        EncoderError: It cannot run here.
    """

    def __init__(self, path: Path, options: dict[str, Any], threads: int) -> None:
        del options
        self._kernels = kernels()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            self._file: np.ndarray = np.load(path.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
            check(content, self._file.nbytes)
        except (ValueError, EncoderError) as error:
            raise EncoderError(f"{path} cannot be used: {error}. Export the encoder again.") from error
        self._tables = content["tables"]
        layers = (Layer * len(content["layers"]))(*(_filled(Layer, layer) for layer in content["layers"]))
        steps = (Step * max(1, len(content["steps"])))(*(_filled(Step, step) for step in content["steps"]))
        model = _filled(Model, content["model"])
        model.layers, model.steps = len(content["layers"]), len(content["steps"])
        self._hidden, self._dim = int(model.hidden), int(model.dim)
        self._encoder = self._kernels.mar_native_open(
            self._file.ctypes.data, ctypes.byref(model), layers, steps, threads
        )
        if not self._encoder:
            raise EncoderError(f"{path.name} could not be opened: no memory, or no more threads ({threads}).")
        close_with(self, self._kernels.mar_native_close, self._encoder)

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """See `Runtime`. Fillers, which other runtimes like for the sake of few shapes, are left out."""
        segments, pool = inputs["segments"], inputs["pool"]
        rows = max(1, int(np.count_nonzero(segments >= 0)))
        starts = np.flatnonzero(np.diff(segments[:rows], prepend=-2)).astype(np.int32)
        starts = np.append(starts, np.int32(rows))
        single = pool.ndim == 1
        embeddings = np.ascontiguousarray(inputs["embeddings"], dtype=np.float32)
        positions = np.ascontiguousarray(inputs["positions"], dtype=np.int64)
        if len(positions) < rows or positions[:rows].min() < 0 or positions[:rows].max() >= self._tables:
            raise EncoderError(f"A text has more positions than the {self._tables} that were exported.")
        pool = np.ascontiguousarray(pool, dtype=np.int64 if single else np.float32)
        vectors = np.empty((len(pool), self._dim), dtype=np.float32)
        state = self._kernels.mar_native_run(  # releases the interpreter's lock
            self._encoder, embeddings.ctypes.data, positions.ctypes.data, starts.ctypes.data, rows,
            len(starts) - 1, pool.ctypes.data if single else None, None if single else pool.ctypes.data,
            0 if single else pool.shape[1], len(pool), vectors.ctypes.data,
        )  # fmt: skip
        if state:
            raise MemoryError(f"There is not enough memory for {rows} tokens.")
        return vectors
