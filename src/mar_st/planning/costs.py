"""Cost of one pass through an encoder: floating-point operations by formula, memory by a dry run.

The dry run executes the real architecture, forward and backward, on tensors that have shapes and no storage,
and tracks the bytes of live tensors. It needs no weights, no memory and no device, and it finds what a
formula per architecture would miss (which activations an autograd function keeps, copies of weights under
autocast).
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from mar_st.model.adapters import add_lora
from mar_st.planning.backbones import Shape, count, meta_model

if TYPE_CHECKING:
    from torch import nn

#: Model types with causal attention.
CAUSAL_MODELS = ("qwen2", "qwen3", "gpt_neox", "gemma", "gemma2", "mistral", "llama", "phi3")

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Training:
    """Training settings of an encoder in a stage.

    Attributes:
        mode: Train all weights, a LoRA adapter, or nothing.
        lora_r: Rank of the adapter.
        checkpointing: Recompute the activations of each layer in the backward pass.
        gradcache: Encode rows in mini-batches, first without gradients (GradCache).
        bf16: Run passes under bf16 autocast.
        dtype: Dtype of its weights (a LoRA adapter is always float32).
    """

    mode: Literal["full", "lora", "frozen"]
    lora_r: int = 0
    checkpointing: bool = False
    gradcache: bool = False
    bf16: bool = False
    dtype: str = "float32"


def forward_flops(shape: Shape, rows: float, length: float) -> float:
    """Return the operations of one forward pass.

    `2 * linear` per token for the linear layers (`linear`: weights that multiply each token) plus
    `4 * length * width * layers` per token for attention (scores and weighted sum; `width` is heads times
    head size), half of that if attention is causal. Look-ups, norms and activations are left out.

    Args:
        shape: The encoder.
        rows: Number of texts.
        length: Tokens per text, padding included.
    """
    width = shape.heads * int(shape.config.get("head_dim") or shape.width // shape.heads)
    attention = 4 * length * width * shape.layers
    if shape.config["model_type"] in CAUSAL_MODELS:
        attention /= 2
    return rows * length * (2 * count(shape).linear + attention)


def training_flops(shape: Shape, rows: float, length: float, training: Training) -> float:
    """Return the operations that one optimiser step spends on one encoder.

    A forward pass costs F. Backward costs 2 F if all weights are trained (gradients of activations and of
    weights) and F for the base under LoRA (of activations only); the adapter itself costs `6 * lora` per
    token. Checkpointing adds F, GradCache adds F. A frozen encoder costs F.
    """
    forward = forward_flops(shape, rows, length)
    if training.mode == "frozen":
        return forward
    extra = int(training.checkpointing) + int(training.gradcache)
    if training.mode == "full":
        return forward * (3 + extra)
    adapter = 2 * rows * length * lora_parameters(shape, training.lora_r)
    return forward * (2 + extra) + adapter * (3 + extra)


def trained_parameters(shape: Shape, training: Training) -> int:
    """Return the number of parameters of an encoder that a stage trains."""
    if training.mode == "frozen":
        return 0
    return lora_parameters(shape, training.lora_r) if training.mode == "lora" else count(shape).total


def lora_parameters(shape: Shape, r: int) -> int:
    """Return the number of parameters of a LoRA adapter: `r * (in + out)` for each linear layer."""
    return r * count(shape).adapter


def pass_memory(shape: Shape, rows: int, length: int, training: Training) -> int:
    """Return the peak bytes of a forward and backward pass over `rows` texts, above those allocated before.

    New gradients are included, except those of the token embeddings (`vocabulary * width` values), which the
    caller adds: the dry run has almost no vocabulary. It uses few layers at the real number of rows; the peak
    is linear in the number of layers, so it is extrapolated to the real depth.
    """
    config = json.dumps(dict(shape.config), sort_keys=True)
    few, more = (3, 5) if shape.layers > 5 else (1, 2)
    low, high = (_dry_run(config, layers, rows, length, training) for layers in (few, more))
    return round(low + (high - low) / (more - few) * (shape.layers - few))


@lru_cache(maxsize=512)
def _dry_run(config: str, layers: int, rows: int, length: int, training: Training) -> int:
    """Return the peak bytes of a pass beyond weights (and beyond gradients that GradCache holds already)."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # lazy: torch._subclasses

    # Lookups need no vocabulary, and a gradient of the embeddings is added by the caller.
    small = {**json.loads(config), "num_hidden_layers": layers, "vocab_size": 8}
    small |= {key: 0 for key in small if key.endswith("_token_id") and small[key] is not None}
    if small.get("layer_types"):
        small["layer_types"] = small["layer_types"][:layers]
    model = meta_model(Shape("backbone", small))
    model.config._attn_implementation = "sdpa" if model._supports_sdpa else "eager"
    _prepare(model, training)
    with FakeTensorMode(), _LiveBytes() as live:
        _without_storage(model)
        model.train()
        if training.gradcache:
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        ids = torch.zeros(rows, length, dtype=torch.long)
        before = live.peak = live.now
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=training.bf16),
            torch.set_grad_enabled(training.mode != "frozen"),
        ):
            states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        if training.mode != "frozen":
            states[:, 0].float().sum().backward()
    return int(live.peak - before)


def _prepare(model: Any, training: Training) -> None:
    """Set an encoder up for a stage, in place: dtype, trained parameters, adapter, checkpointing."""
    model.to(getattr(torch, training.dtype))
    if training.mode != "full":
        model.requires_grad_(False)
    if training.mode == "lora":
        # A new adapter is created on the default device, not on the model's.
        with next(model.parameters()).device:
            transformer: Any = SimpleNamespace(model=model)
            add_lora(transformer, r=training.lora_r)
    if training.checkpointing and training.mode != "frozen":
        model.config.use_cache = False
        model.activation_checkpointing_enable()
        if training.mode == "lora":
            model.enable_input_require_grads()


def _without_storage(model: nn.Module) -> None:
    """Replace the tensors of a meta model by fake ones on the CPU, where autocast acts."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                fake = torch.empty(parameter.shape, dtype=parameter.dtype)
                module._parameters[name] = torch.nn.Parameter(fake, requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype)


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the bytes of all live tensors with memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._track, result)
        return result

    def _track(self, tensor: Tensor) -> None:
        if tensor.device.type == "meta":  # it takes no memory
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._alive.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size
