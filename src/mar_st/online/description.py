"""The description of an encoder in C++: structures as `encoder.cpp` declares them, with every number checked.

The C++ code checks nothing. So a number that could point outside the file of weights, or outside memory that
is sized by other numbers, must not reach it.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
