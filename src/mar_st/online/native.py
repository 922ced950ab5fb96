"""Runtime `native`: the encoder of `encoder.cpp`, its weights and its calls from Python."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.files import load_array, read_json
from mar_st.kernels.build import CompileError, close_with, library, processor
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Iterator


#: As in `simd.hpp`.
ACTIVATIONS = {"identity": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "relu": 4, "tanh": 5}
#: As in `encoder.cpp`.
STEPS = {"linear": 0, "norm": 1, "unit": 2}

#: Maximum width and number of positions: products of two of them fit 64 bits, sums 32 bits.
MAX_SIZE = 2**20

_I32, _I64, _F32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float


class Linear(ctypes.Structure):
    """A layer; places in the file, -1 for none."""

    _fields_ = (("weight", _I64), ("scales", _I64), ("bias", _I64), ("inputs", _I32), ("outputs", _I32))


class Norm(ctypes.Structure):
    """A norm; `absent` if nothing is normalised."""

    _fields_ = (("weight", _I64), ("bias", _I64), ("absent", _I32), ("unused", _I32))


class Layer(ctypes.Structure):
    """A layer of the transformer."""

    _fields_ = (
        ("qkv", Linear), ("out", Linear), ("up", Linear), ("down", Linear),
        ("before", Norm), ("after", Norm), ("query", Norm), ("key", Norm),
        ("cosines", _I64), ("sines", _I64), ("window", _I32), ("unused", _I32),
    )  # fmt: skip


class HeadModule(ctypes.Structure):
    """One module after pooling."""

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


_SIZE_FIELDS = ("hidden", "inner", "head_size", "heads", "key_heads", "dim", "inputs", "outputs")
_BOOLEAN_FIELDS = ("gated", "pre_norm", "rms", "causal", "absent")

#: Range of numbers of 32 bits.
_RANGES = {
    **dict.fromkeys(_SIZE_FIELDS, (1, MAX_SIZE)),
    **dict.fromkeys(_BOOLEAN_FIELDS, (0, 1)),
    "activation": (0, max(ACTIVATIONS.values())),
    "kind": (0, max(STEPS.values())),
    "window": (-1, MAX_SIZE),
}

#: Fields that a description does not contain: counts that are computed here, and padding.
_OMITTED_FIELDS = frozenset({"layers", "steps", "unused"})


@dataclass(frozen=True)
class Description:
    """A description that was checked.

    Attributes:
        model: Sizes and settings.
        layers: Array of the layers.
        steps: Array of the modules after pooling; if there are none, it has one unused element.
        tables: Number of positions.
    """

    model: Any
    layers: Any
    steps: Any
    tables: int

    @classmethod
    def of(cls, content: Any, size: int) -> Description:
        """Return the structures of a description.

        Args:
            content: The content of the JSON file.
            size: Size of the weights file in bytes.

        Raises:
            EncoderError: A value is missing, is not a valid number, or is outside the file.
        """
        try:
            layers, steps, tables = content["layers"], content["steps"], content["tables"]
            if not isinstance(layers, list) or not isinstance(steps, list) or not layers:
                raise EncoderError("'layers' and 'steps' are lists, the former of one or more")
            model = _filled(Model, content["model"], "model")
            model.layers, model.steps = len(layers), len(steps)
            description = cls(
                model,
                (Layer * len(layers))(*(_filled(Layer, layer, "layers") for layer in layers)),
                (HeadModule * max(1, len(steps)))(*(_filled(HeadModule, step, "steps") for step in steps)),
                _integer("tables", tables, 1, MAX_SIZE),
            )
        except (KeyError, TypeError) as error:
            raise EncoderError(f"the description is broken ({error})") from error
        for place, length in description.spans():
            if place != -1 and not (0 <= place <= size - length and place % 64 == 0):
                raise EncoderError(f"an array of {length} bytes cannot be at byte {place} of {size}")
        return description

    def spans(self) -> Iterator[tuple[int, int]]:
        """Return where arrays are in the file, -1 for none, and the bytes that they must have there.

        Raises:
            EncoderError: Sizes do not match.
        """
        model, tables = self.model, self.tables
        hidden, inner, size = model.hidden, model.inner, model.head_size
        queries, keys = model.heads * size, model.key_heads * size
        if model.heads % model.key_heads or queries > MAX_SIZE:
            raise EncoderError(f"{model.heads} heads of {size} cannot share {model.key_heads}")
        yield model.types, hidden * 4
        yield model.positions, hidden * tables * 4
        for layer in self.layers:
            yield from _linear(layer.qkv, hidden, queries + 2 * keys)
            yield from _linear(layer.out, queries, hidden)
            yield from _linear(layer.up, hidden, -(-inner // 16) * 32 if model.gated else inner)
            yield from _linear(layer.down, inner, hidden)
            for norm, width in (
                (layer.before, hidden), (layer.after, hidden), (layer.query, size), (layer.key, size)
            ):  # fmt: skip
                yield from _norm(norm, width)
            if (layer.cosines < 0) != (layer.sines < 0) or (layer.cosines >= 0 and size % 2):
                raise EncoderError(f"cosines and sines are for both halves of a head; it has {size} numbers")
            yield layer.cosines, tables * (size // 2) * 4
            yield layer.sines, tables * (size // 2) * 4
        yield from _norm(model.embeddings, hidden)
        yield from _norm(model.last, hidden)
        width = hidden
        for step in list(self.steps)[: model.steps]:
            if step.kind == STEPS["linear"]:
                yield from _linear(step.linear, width, step.linear.outputs)
                width = step.linear.outputs
            yield from _norm(step.norm, width)
        if width != model.dim:
            raise EncoderError(f"vectors have {width} numbers, not {model.dim}")


def _linear(layer: Any, inputs: int, outputs: int) -> Iterator[tuple[int, int]]:
    if (layer.inputs, layer.outputs) != (inputs, outputs):
        raise EncoderError(
            f"a layer has {layer.inputs} inputs and {layer.outputs} outputs, not {inputs} and {outputs}"
        )
    if min(layer.weight, layer.scales) < 0:
        raise EncoderError("a layer has no weight or no scales")
    rows = -(-outputs // 32) * 32
    yield layer.weight, rows * (-(-inputs // 16) * 16)
    yield layer.scales, rows * (-(-inputs // 128)) * 4
    yield layer.bias, outputs * 4


def _norm(norm: Any, width: int) -> Iterator[tuple[int, int]]:
    yield norm.weight, width * 4
    yield norm.bias, width * 4


def _filled(kind: type[ctypes.Structure], values: Any, where: str) -> Any:
    """Return a structure with these values; norms, layers and steps that are not given are absent."""
    if not isinstance(values, dict):
        raise EncoderError(f"{where!r} is not an object")
    structure = kind()
    for name, form, *_ in kind._fields_:
        if issubclass(form, ctypes.Structure):
            part = {"absent": 1} if form is Norm else None
            if name in values and values[name] is not None:
                part = values[name]
            if part is not None:
                setattr(structure, name, _filled(form, part, name))
            elif kind is Layer:
                raise EncoderError(f"{name!r} is missing")
        elif name in _OMITTED_FIELDS:
            continue
        elif form is _I64:
            setattr(structure, name, _integer(name, values.get(name, -1), -1, 2**63 - 1))
        elif form is _F32:
            setattr(structure, name, _number(name, values.get(name, 0.0)))
        elif name in values:
            setattr(structure, name, _integer(name, values[name], *_RANGES[name]))
        elif name in _SIZE_FIELDS:
            raise EncoderError(f"{name!r} is missing")
    return structure


def _integer(name: str, value: Any, least: int, largest: int) -> int:
    """Check the range of a whole number: a structure would truncate one that does not fit 32 bits."""
    if type(value) is not int or not least <= value <= largest:
        raise EncoderError(f"{name!r} is a whole number from {least} to {largest}; got {repr(value)[:40]}")
    return value


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= 1e30 or math.isnan(value):
        raise EncoderError(f"{name!r} is a number; got {repr(value)[:40]}")
    return float(value)


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
        threads: Threads per call.

    Raises:
        EncoderError: The runtime cannot run on this machine.
    """

    def __init__(self, path: Path, threads: int) -> None:
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
        """Compute the vectors of a pack, without the padding by which other runtimes limit shapes."""
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
