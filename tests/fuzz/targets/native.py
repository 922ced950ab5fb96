"""Descriptions of native encoders of any sizes, with fields that are broken, computed by the kernels.

An input says the sizes of an encoder, the changes of its description, and the texts that are encoded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.online.protocol import EncoderError
from mar_st.online.runtimes import native as runtime
from tests.fuzz import sanitized
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

missing, environment = sanitized.missing, sanitized.environment

_SIZES = {
    "heads": 4,
    "key_heads": 4,
    "head_size": 66,
    "hidden": 200,
    "inner": 200,
    "dim": 130,
    "layers": 3,
    "tables": 64,
}


class _Layout:
    """Places of arrays, one after the other."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, length: int) -> int:
        place = self.size
        self.size += -(-length // 64) * 64
        return place

    def linear(self, inputs: int, outputs: int, *, bias: bool) -> dict[str, int]:
        rows = -(-outputs // 32) * 32
        return {
            "weight": self.add(rows * (-(-inputs // 16) * 16)),
            "scales": self.add(rows * (-(-inputs // 128)) * 4),
            "bias": self.add(outputs * 4) if bias else -1,
            "inputs": inputs,
            "outputs": outputs,
        }

    def norm(self, width: int) -> dict[str, int]:
        return {"weight": self.add(width * 4), "bias": self.add(width * 4), "absent": 0}


def described(sizes: dict[str, int], flags: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A description whose numbers agree, and the bytes of its weights."""
    heads, keys, size = sizes["heads"], sizes["key_heads"], sizes["head_size"]
    hidden, inner, tables = sizes["hidden"], sizes["inner"], sizes["tables"]
    file, layers = _Layout(), []
    bias, gated = bool(flags.get("bias")), bool(flags.get("gated"))
    rotary = {}
    if flags.get("rotary") and size % 2 == 0:
        rotary = {"cosines": file.add(tables * (size // 2) * 4), "sines": file.add(tables * (size // 2) * 4)}
    for _ in range(sizes["layers"]):
        up = -(-inner // 16) * 32 if gated else inner
        layer: dict[str, Any] = {
            "qkv": file.linear(hidden, (heads + 2 * keys) * size, bias=bias),
            "out": file.linear(heads * size, hidden, bias=bias),
            "up": file.linear(hidden, up, bias=bias),
            "down": file.linear(inner, hidden, bias=bias),
            "before": file.norm(hidden), "after": file.norm(hidden), "window": flags.get("window", -1),
        }  # fmt: skip
        if flags.get("norms"):
            layer |= {"query": file.norm(size), "key": file.norm(size)}
        layers.append(layer | rotary)
    steps: list[dict[str, Any]] = []
    width = hidden
    if flags.get("dense"):
        width = sizes["dim"]
        steps.append({"kind": 0, "activation": 5, "linear": file.linear(hidden, width, bias=bias)})
        steps.append({"kind": 1, "norm": file.norm(width), "eps": 1e-5})
    steps.append({"kind": 2})
    model = {
        "hidden": hidden, "inner": inner, "heads": heads, "key_heads": keys, "head_size": size, "dim": width,
        "scale": 0.25, "eps": 1e-6, "activation": flags.get("activation", 1), "gated": int(gated),
        "pre_norm": int(bool(flags.get("pre_norm"))), "rms": int(bool(flags.get("rms"))),
        "causal": int(bool(flags.get("causal"))), "embeddings": file.norm(hidden), "last": file.norm(hidden),
        "types": file.add(hidden * 4), "positions": file.add(hidden * tables * 4),
    }  # fmt: skip
    return {"model": model, "layers": layers, "steps": steps, "tables": tables}, file.size


def _sizes(asked: Any) -> dict[str, int]:
    asked = asked if isinstance(asked, dict) else {}
    sizes = {name: asked.get(name, 2) for name in _SIZES}
    sizes = {
        name: 1 + abs(value) % most if type(value) is int else 2
        for (name, value), most in zip(sizes.items(), _SIZES.values(), strict=True)
    }
    sizes["heads"] = -(-sizes["heads"] // sizes["key_heads"]) * sizes["key_heads"]
    return sizes


def _change(content: Any, changes: Any) -> None:
    """Put values at places such as `layers.0.qkv.weight`."""
    for way, value in changes.items() if isinstance(changes, dict) else ():
        part, names = content, str(way).split(".")
        for name in names[:-1]:
            part = part[int(name)] if isinstance(part,
            list) and name.isdigit() and int(name) < len(part) else (
                part.get(name) if isinstance(part, dict) else None
            )  # fmt: skip
        if isinstance(part, dict):
            part[names[-1]] = value


def _places(part: Any, way: str = "") -> list[str]:
    items = part.items() if isinstance(part, dict) else enumerate(part)
    places = []
    for name, value in items:
        place = f"{way}.{name}" if way else str(name)
        places += _places(value, place) if isinstance(value, dict | list) else [place]
    return places


def prepare(folder: Path) -> Target:
    """Set up the target: native encoders, built with sanitizers."""
    sanitized.use()
    runtime.kernels()  # compiled before the first case
    memory: list[sanitized.Memory] = []
    noise = np.random.default_rng(0)
    bytes_ = noise.integers(0, 256, 2**22, dtype=np.uint8)
    floats = noise.standard_normal(2**20).astype(np.float32).view(np.uint8)
    runtime._weights = lambda path: memory[-1].array
    path = folder / "native-int8.json"

    def check(data: bytes) -> str:
        try:
            asked = json.loads(data)
        except (ValueError, RecursionError):
            asked = {}
        asked = asked if isinstance(asked, dict) else {}
        flags = asked.get("flags") if isinstance(asked.get("flags"), dict) else {}
        content, size = described(_sizes(asked.get("sizes")), flags)
        _change(content, asked.get("change"))
        if asked.get("cut"):
            size = max(64, size - 64)
        memory.append(sanitized.Memory(size))
        del memory[:-1]
        source = bytes_ if asked.get("odd") else floats
        memory[-1].array[:] = np.resize(source, size)
        path.write_text(json.dumps(content), encoding="utf-8")
        encoder = runtime.NativeRuntime(path, {}, 1 + bool(asked.get("team")))
        vectors = encoder.run(_inputs(asked, encoder._hidden, encoder._tables))
        encoder.run(_inputs({**asked, "lengths": [1]}, encoder._hidden, encoder._tables))
        return f"vectors {np.isfinite(vectors).all()} {sorted(flags)}"

    return Target(_seeds(), check, (EncoderError,))


def _inputs(asked: dict[str, Any], hidden: int, tables: int) -> dict[str, np.ndarray]:
    """Inputs as `TextPacker` makes them."""
    given = asked.get("lengths")
    lengths = (
        [1 + abs(one) % tables for one in given if type(one) is int][:8] if isinstance(given, list) else []
    )
    lengths = lengths or [min(5, tables)]
    rows, size = sum(lengths), -(-sum(lengths) // 16) * 16
    segments = np.full(size, -1, dtype=np.int32)
    segments[:rows] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    positions = np.zeros(size, dtype=np.int64)
    positions[:rows] = np.concatenate([np.arange(length) for length in lengths])
    values = np.random.default_rng(rows)
    embeddings = values.standard_normal((size, hidden)).astype(np.float32)
    count = 1 << (len(lengths) - 1).bit_length()
    if asked.get("single"):
        pool = np.zeros(count, dtype=np.int64)
        pool[: len(lengths)] = np.cumsum(lengths) - 1
    else:
        pool = values.random((count, size)).astype(np.float32)
    return {"embeddings": embeddings, "positions": positions, "segments": segments, "pool": pool}


def _seeds() -> list[bytes]:
    sizes = {
        "heads": 1,
        "key_heads": 1,
        "head_size": 15,
        "hidden": 31,
        "inner": 47,
        "dim": 11,
        "layers": 1,
        "tables": 39,
    }
    odd = {
        "heads": 2,
        "key_heads": 0,
        "head_size": 32,
        "hidden": 128,
        "inner": 16,
        "dim": 32,
        "layers": 0,
        "tables": 1,
    }
    kinds: list[dict[str, Any]] = [
        {"bias": 1, "activation": 1, "norms": 0},
        {"gated": 1, "rotary": 1, "activation": 3, "window": 4},
        {"gated": 1, "rotary": 1, "causal": 1, "rms": 1, "pre_norm": 1, "norms": 1, "dense": 1, "bias": 1},
    ]
    seeds: list[Any] = [
        {"sizes": one, "flags": flags, "lengths": lengths, "single": single, "team": single}
        for one in (sizes, odd)
        for flags in kinds
        for lengths, single in (([3, 17, 1], True), ([30, 4], False))
    ]
    values = [
        -1,
        0,
        1,
        2,
        64,
        4096,
        2**31 - 1,
        2**31,
        2**32 + 32,
        2**63 - 1,
        0.5,
        None,
        "x",
        [],
        {"absent": 1},
    ]
    for kind, flags in enumerate(kinds):
        content, size = described(_sizes(sizes), flags)
        for number, place in enumerate(_places(content)):
            value = [*values, size, size - 64, -64][(number + 5 * kind) % (len(values) + 3)]
            seeds.append(
                {
                    "sizes": sizes,
                    "flags": flags,
                    "lengths": [5, 7],
                    "single": number % 2,
                    "change": {place: value},
                }
            )
    return [json.dumps(one).encode() for one in seeds]
