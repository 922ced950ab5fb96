"""The encoder in the form that `mar_st.kernels` computes: a description, and weights as kernels read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import nn

from mar_st.errors import MarError
from mar_st.export.graph import PackedEncoder, position_offset
from mar_st.online.listing import ExportVariant, Listing
from mar_st.online.native import ACTIVATIONS, STEPS, kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


#: As in `linear.hpp`: inputs that share a scale, outputs of a block, and the multiple to which inputs are
#: padded.
_GROUP, _WIDTH, _STEP = 128, 32, 16

#: Alignment of arrays in bytes: a cache line.
_ALIGNMENT = 64

_NAMES = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "silu": "silu", "swish": "silu", "relu": "relu",
}  # fmt: skip


class _File:
    """Arrays one after the other."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.size = 0

    def add(self, values: torch.Tensor | np.ndarray | None) -> int:
        """Append an array and return its offset; -1 for none."""
        if values is None:
            return -1
        if isinstance(values, torch.Tensor):
            values = values.detach().float().numpy()
        place = self.size
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.parts += [content, np.zeros(-len(content) % _ALIGNMENT, dtype=np.uint8)]
        self.size += len(content) + -len(content) % _ALIGNMENT
        return place

    def write(self, path: Path) -> None:
        """Write an `.npy` file; its header is as long as a cache line or more of them."""
        file = open_memmap(path, "w+", np.uint8, (self.size,))
        start = 0
        for part in self.parts:
            file[start : start + len(part)] = part
            start += len(part)
        file.flush()


def pack(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights in 8 bits, as `linear.hpp` reads them.

    Args:
        weight: float32 `(out, in)`.

    Returns:
        uint8 `(blocks, in / 4, 32, 4)`, offset by 128, and scales float32 `(blocks, groups, 32)`: for each
        output and group of 128 inputs, the largest absolute value divided by 127.
    """
    outputs, inputs = weight.shape
    blocks, groups = -(-outputs // _WIDTH), -(-inputs // _GROUP)
    full = np.zeros((blocks * _WIDTH, groups * _GROUP), dtype=np.float32)
    full[:outputs, :inputs] = weight
    grouped = full.reshape(-1, groups, _GROUP)
    scales = np.abs(grouped).max(-1) / np.float32(127)
    values = np.rint(grouped / np.maximum(scales, np.float32(1e-30))[..., None]).astype(np.int16) + 128
    values = values.reshape(len(full), -1)[:, : -(-inputs // _STEP) * _STEP].astype(np.uint8)
    packed = values.reshape(blocks, _WIDTH, -1, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(packed), np.ascontiguousarray(
        scales.reshape(blocks, _WIDTH, groups).transpose(0, 2, 1)
    )


class _Describer:
    """Collects the parts of a model in a file and describes where they are."""

    def __init__(self, model: Any, length: int) -> None:
        self.model, self.config, self.length = model, model.config, length
        self.file = _File()

    def linear(self, *layers: Any, pairs: bool = False) -> dict[str, Any]:
        """Return stacked layers that read the same input; `pairs`: alternate 16 rows of two halves."""
        weight = np.concatenate([layer.weight.detach().float().numpy() for layer in layers])
        if not np.isfinite(weight).all():
            raise MarError("A weight is not finite.")
        bias = None
        if layers[0].bias is not None:
            bias = np.concatenate([layer.bias.detach().float().numpy() for layer in layers])
        if pairs:
            order = _paired(len(weight) // 2)
            weight = np.where(order[:, None] < 0, np.float32(0), weight[order])
            bias = None if bias is None else np.where(order < 0, np.float32(0), bias[order])
        packed, scales = pack(weight)
        return {
            "weight": self.file.add(packed), "scales": self.file.add(scales), "bias": self.file.add(bias),
            "inputs": weight.shape[1], "outputs": weight.shape[0],
        }  # fmt: skip

    def norm(self, module: Any) -> dict[str, Any]:
        """Return a norm; `nn.Identity` and none are absent."""
        if module is None or isinstance(module, nn.Identity):
            return {"absent": 1}
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        return {"weight": self.file.add(weight), "bias": self.file.add(bias), "absent": 0}

    def rotation(self, *kind: str) -> dict[str, Any]:
        """Return the tables of cosines and sines for all positions."""
        types = self.model.rotary_emb.rope_type
        if {"dynamic", "longrope"} & set(types.values() if isinstance(types, dict) else [types]):
            raise MarError("The native encoder takes no rotary positions that depend on a text's length.")
        positions = torch.arange(self.length)[None]
        cosines, sines = self.model.rotary_emb(torch.zeros(1), positions, *kind)
        half = cosines.shape[-1] // 2
        if 2 * half != _head_size(self.config):
            raise MarError("The native encoder rotates whole heads, and this model a part of each.")
        return {"cosines": self.file.add(cosines[0, :, :half]), "sines": self.file.add(sines[0, :, :half])}

    def common(self, activation: str, eps: float, **more: Any) -> dict[str, Any]:
        """Return the settings that all families have."""
        config = self.config
        if activation not in _NAMES:
            raise MarError(f"The native encoder knows {', '.join(_NAMES)}, not {activation!r}.")
        heads = config.num_attention_heads
        size = _head_size(config)
        return {
            "hidden": config.hidden_size, "inner": config.intermediate_size,
            "heads": heads, "key_heads": heads, "head_size": size, "scale": size**-0.5,
            "activation": ACTIVATIONS[_NAMES[activation]], "eps": eps,
        } | more  # fmt: skip

    def products(self, layer: Any) -> dict[str, Any]:
        """Return the linear layers of a layer with the names that most newer models give them."""
        attention, mlp = layer.self_attn, layer.mlp
        return {
            "qkv": self.linear(attention.q_proj, attention.k_proj, attention.v_proj),
            "out": self.linear(attention.o_proj),
            "up": self.linear(mlp.gate_proj, mlp.up_proj, pairs=True),
            "down": self.linear(mlp.down_proj),
        }

    def gte(self) -> dict[str, Any]:
        model, config, rotation = self.model, self.config, self.rotation()
        types = model.embeddings.token_type_embeddings
        layers = [
            {
                **self.products(layer),
                "before": self.norm(layer.post_attention_layernorm),
                "after": self.norm(layer.post_mlp_layernorm),
                "window": -1,
            }
            | rotation
            for layer in model.layers
        ]
        common = self.common(config.hidden_act, config.layer_norm_eps, gated=1)
        common |= {
            "types": self.file.add(None if types is None else types.weight[0]),
            "embeddings": self.norm(model.embeddings.LayerNorm),
        }
        return {"model": common, "layers": layers}

    def bert(self) -> dict[str, Any]:
        model, config = self.model, self.config
        layers = [
            {
                "qkv": self.linear(
                    layer.attention.self.query, layer.attention.self.key, layer.attention.self.value
                ),
                "out": self.linear(layer.attention.output.dense),
                "up": self.linear(layer.intermediate.dense),
                "down": self.linear(layer.output.dense),
                "before": self.norm(layer.attention.output.LayerNorm),
                "after": self.norm(layer.output.LayerNorm),
                "window": -1,
            }
            for layer in model.encoder.layer
        ]
        embeddings = model.embeddings
        common = self.common(config.hidden_act, config.layer_norm_eps)
        common |= {
            "types": self.file.add(embeddings.token_type_embeddings.weight[0]),
            "positions": self.file.add(self._positions(embeddings.position_embeddings.weight)),
            "embeddings": self.norm(embeddings.LayerNorm),
        }
        return {"model": common, "layers": layers}

    def _positions(self, table: torch.Tensor) -> torch.Tensor:
        if len(table) < self.length:
            raise MarError(f"The model has {len(table)} positions, and texts may need {self.length}.")
        return table[: self.length]

    def modernbert(self) -> dict[str, Any]:
        model, config = self.model, self.config
        rotations = {kind: self.rotation(kind) for kind in set(config.layer_types)}
        layers = [
            {
                "qkv": self.linear(layer.attn.Wqkv),
                "out": self.linear(layer.attn.Wo),
                "up": self.linear(layer.mlp.Wi, pairs=True),
                "down": self.linear(layer.mlp.Wo),
                "before": self.norm(layer.attn_norm),
                "after": self.norm(layer.mlp_norm),
                "window": config.sliding_window if layer.attention_type == "sliding_attention" else -1,
            }
            | rotations[layer.attention_type]
            for layer in model.layers
        ]
        common = self.common(config.hidden_activation, config.norm_eps, gated=1, pre_norm=1)
        common |= {"embeddings": self.norm(model.embeddings.norm), "last": self.norm(model.final_norm)}
        return {"model": common, "layers": layers}

    def qwen3(self) -> dict[str, Any]:
        model, config, rotation = self.model, self.config, self.rotation()
        if set(config.layer_types or ()) - {"full_attention"}:
            raise MarError("The native encoder takes no Qwen3 with sliding windows.")
        layers = [
            {
                **self.products(layer),
                "before": self.norm(layer.input_layernorm),
                "after": self.norm(layer.post_attention_layernorm),
                "query": self.norm(layer.self_attn.q_norm),
                "key": self.norm(layer.self_attn.k_norm),
                "window": -1,
            }
            | rotation
            for layer in model.layers
        ]
        common = self.common(config.hidden_act, config.rms_norm_eps, gated=1, pre_norm=1, rms=1)
        common |= {
            "key_heads": config.num_key_value_heads,
            "causal": 1,
            "embeddings": {"absent": 1},
            "last": self.norm(model.norm),
        }
        return {"model": common, "layers": layers}

    def steps(self, tail: Sequence[Any]) -> list[dict[str, Any]]:
        """Describe the modules after pooling."""
        described: list[dict[str, Any]] = []
        for module in tail:
            if type(module).__name__ == "Dense":
                function = module.activation_function
                activation = type(function).__name__.lower()
                if getattr(function, "approximate", "none") == "tanh":
                    activation += "_tanh"
                if activation not in ACTIVATIONS:
                    raise MarError(f"The native encoder has no activation {activation!r} after pooling.")
                step = {"kind": STEPS["linear"], "activation": ACTIVATIONS[activation]}
                described.append({**step, "linear": self.linear(module.linear)})
            else:
                described.append({"kind": STEPS["unit"]})
        return described


def _head_size(config: Any) -> int:
    size: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return size


def _paired(count: int) -> np.ndarray:
    """Return rows of two halves of `count`, 16 of the first before 16 of the second; -1 for padding."""
    half = np.full(-(-count // 16) * 16, -1)
    half[:count] = np.arange(count)
    both = np.stack([half, np.where(half < 0, -1, half + count)]).reshape(2, -1, 16)
    return both.transpose(1, 0, 2).reshape(-1)


#: Architectures, by `model_type`.
_FAMILIES: dict[str, Callable[[_Describer], dict[str, Any]]] = {
    "gte": _Describer.gte,
    "bert": _Describer.bert,
    "roberta": _Describer.bert,
    "xlm-roberta": _Describer.bert,
    "camembert": _Describer.bert,
    "modernbert": _Describer.modernbert,
    "qwen3": _Describer.qwen3,
}


def native_writer(
    graph: PackedEncoder, example: dict[str, np.ndarray], listing: Listing, folder: Path
) -> Callable[[str], ExportVariant]:
    """Return the function that writes the one variant that `mar_st.kernels` computes: int8 throughout.

    Raises:
        MarError: The encoder's architecture is not supported, or this machine cannot run it.
    """
    del example
    kind = graph.model.config.model_type
    if kind not in _FAMILIES:
        raise MarError(f"The native encoder computes {', '.join(_FAMILIES)}; this is {kind}.")
    kernels()
    length = listing.max_length + position_offset(graph.model)

    def write(precision: str) -> ExportVariant:
        name = f"native-{precision}"
        describer = _Describer(graph.model, length)
        content = _FAMILIES[kind](describer)
        content["steps"] = describer.steps(list(graph.tail))
        dims = [step["linear"]["outputs"] for step in content["steps"] if "linear" in step]
        content["tables"] = length
        content["model"]["dim"] = dims[-1] if dims else content["model"]["hidden"]
        describer.file.write(folder / f"{name}.npy")
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
        files = [f"{name}.json", f"{name}.npy"]
        return ExportVariant("native", precision, files[0], files)

    return write
