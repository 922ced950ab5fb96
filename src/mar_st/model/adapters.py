"""LoRA on one encoder: target layers, adding, merging.

sentence-transformers' `add_adapter` walks the whole model and so puts LoRA on both routes of a `Router`;
these functions act only on the given transformer. They use the adapter support of transformers, which saves
an encoder with an unmerged adapter as an ordinary PEFT folder. A whole MAR is saved after merging.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from mar_st.errors import MarError
from mar_st.files.packages import need_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import PreTrainedModel

#: Projections of a layer of the Llama family (Qwen, Mistral, Gemma, gte); they carry LoRA in MAR.
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

#: Elements of a weight that are merged at a time.
_MERGE_BLOCK = 2**20

#: Linear layers that no vector goes through: BERT's pooler, and heads.
_NON_ENCODER_LAYERS = {"pooler", "head", "lm_head", "cls"}


class LoRAError(MarError):
    """Layers that an encoder does not have."""


def default_targets(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the layers that carry LoRA unless a recipe names others: all linear layers.

    For the Llama family these are `LORA_TARGETS`, for GPT-NeoX (Pythia) `query_key_value`, `dense`,
    `dense_h_to_4h` and `dense_4h_to_h`, for BERT `query`, `key`, `value` and `dense`. Embeddings and poolers
    are left out.

    Args:
        model: The encoder; its parameters may be on the meta device.

    Raises:
        LoRAError: The encoder has no linear layer.
    """
    names = dict.fromkeys(name.rpartition(".")[2] for name in _linear_layers(model))
    ordered = [name for name in LORA_TARGETS if name in names]
    targets = (*ordered, *(name for name in names if name not in ordered))
    if not targets:
        raise LoRAError(f"{type(model).__name__} has no linear layers; train it in full, without lora_r.")
    return targets


def _linear_layers(model: nn.Module) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not _left_out(name, module)
    ]


def _left_out(name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and not _NON_ENCODER_LAYERS.isdisjoint(name.split("."))


def _need_peft() -> None:
    need_packages("peft", extra="train", purpose="LoRA")


def has_adapter(encoder: nn.Module) -> bool:
    """Return True if a module is a Transformer with a LoRA adapter that has not been merged."""
    return bool(getattr(getattr(encoder, "model", None), "_hf_peft_config_loaded", False))


def check_merged(encoder: nn.Module, route: str) -> None:
    """Refuse an encoder with an adapter in a MAR that is saved.

    Its folder would hold the adapter alone, and transformers finds no base model from a folder inside a
    model.

    Args:
        encoder: First module of a route; it need not be a Transformer.
        route: Name of the route, for the message.

    Raises:
        LoRAError: The encoder carries an adapter.
    """
    if has_adapter(encoder):
        raise LoRAError(
            f"The {route} encoder carries an adapter that is not merged, and a saved MAR holds whole "
            f"encoders. Merge it first: mar_st.model.adapters.merge_lora(mar.route_modules({route!r})[0])."
        )


def add_lora(
    transformer: Transformer,
    *,
    r: int = 32,
    alpha: int = 64,
    dropout: float = 0.1,
    targets: Sequence[str] | None = None,
) -> None:
    """Freeze the encoder and give it a trainable LoRA adapter, in place.

    The adapter is float32 whatever the encoder is stored in: optimiser steps are rounded away in bfloat16.

    Args:
        transformer: The module whose `model` is adapted.
        r: Rank of the update.
        alpha: Scale of the update; the factor is `alpha / r`.
        dropout: Dropout on the adapter's input while training.
        targets: Names of the linear layers to adapt; default all of them, see `default_targets`.

    Raises:
        PackageError: peft is not installed.
        LoRAError: The model lacks one of the target layers, or carries an adapter already.
    """
    _need_peft()
    from peft import LoraConfig, TaskType  # lazy: peft

    from mar_st.model.lora_linear import replace_layers  # lazy: peft

    model: Any = transformer.model
    if has_adapter(transformer):
        raise LoRAError(f"{type(model).__name__} already has an adapter; merge it with merge_lora first.")
    known = {name.rpartition(".")[2] for name in _linear_layers(model)}
    wanted = default_targets(model) if targets is None else tuple(targets)
    unknown = [target for target in wanted if target not in known]
    if unknown or not wanted:
        raise LoRAError(
            f"{type(model).__name__} lacks the LoRA targets {', '.join(unknown) or '(none given)'}; its "
            f"linear layers are called {', '.join(sorted(known))}. Leave lora_targets out to adapt them all."
        )
    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=r,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=list(wanted),
        exclude_modules=[name for name, layer in model.named_modules() if _left_out(name, layer)] or None,
    )
    model.requires_grad_(False)
    model.add_adapter(config)
    replace_layers(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


@dataclass(frozen=True)
class MergeLoss:
    """Rounding loss of a LoRA update in the dtype that the merged weights are stored in.

    Attributes:
        dtype: Dtype of the merged weights, for instance `bfloat16`.
        lost: Norm of the rounding error relative to the norm of the update, over all adapted layers together:
            0 in float32.
    """

    dtype: str
    lost: float


def merge_lora(transformer: Transformer, storage_dtype: torch.dtype | None = None) -> MergeLoss | None:
    """Merge the LoRA adapter into the weights, in place; an encoder without one does not change.

    The sum of weights and update is computed in float32 and rounded once. An update is small compared with
    the weights, so a 16-bit sum keeps only a part of it: bfloat16 has 8 significant bits.

    Args:
        transformer: The module whose `model` carries the adapter.
        storage_dtype: Dtype that the whole encoder is stored in afterwards; default each layer's own.

    Returns:
        The rounding loss; `None` without an adapter.

    Raises:
        PackageError: The encoder has an adapter and peft is not installed.
        ValueError: Merging would give weights that are not finite.
    """
    if not has_adapter(transformer):
        return None
    _need_peft()
    model: PreTrainedModel = transformer.model
    update = lost = 0.0
    stored: torch.dtype | None = storage_dtype
    for name, layer in _adapted(model):
        if hasattr(layer, "unload_and_optionally_merge_module"):
            merged = _unwrapped(layer, storage_dtype)
        else:
            merged = layer.get_base_layer()
            target = storage_dtype or merged.weight.dtype
            stored = stored or target
            fold = _fold if _is_plain(layer) else _fold_by_peft
            added, rounded = fold(layer, target)
            update += added
            lost += rounded
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, merged)
    model._hf_peft_config_loaded = False
    if hasattr(model, "peft_config"):
        del model.peft_config
    # Loading an adapter leaves the renaming of its parameters here, which saving would apply in reverse.
    vars(model).pop("_weight_conversions", None)
    if storage_dtype is not None:
        for parameter in model.parameters():  # buffers, such as rotary frequencies, do not change
            parameter.data = parameter.data.to(storage_dtype)
    return MergeLoss(str(stored).removeprefix("torch."), math.sqrt(lost / update) if update else 0.0)


def _adapted(model: nn.Module) -> list[tuple[str, Any]]:
    """Return the modules of peft that stand for modules of the model, without those inside them."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # lazy: peft
    from peft.utils.other import AuxiliaryTrainingWrapper  # lazy: peft

    found: list[tuple[str, Any]] = []
    for name, module in model.named_modules():
        inside = bool(found) and name.startswith(f"{found[-1][0]}.")
        if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper) and not inside:
            found.append((name, module))
    return found


def _unwrapped(wrapper: Any, storage_dtype: torch.dtype | None) -> nn.Module:
    """Return the module that computes what a wrapper of peft does, in the dtype of the module it stands for.

    Wrappers hold modules and token embeddings that were trained in full, beside the updates of linear layers.
    """
    original = getattr(wrapper, "original_module", None)
    before = None if original is None else next((one.dtype for one in original.parameters()), None)
    merged: nn.Module = wrapper.unload_and_optionally_merge_module(True, True, None)
    return merged.to(storage_dtype or before)


def _is_plain(layer: Any) -> bool:
    """Return True if the update of a layer is the product of its two matrices, and nothing else."""
    from peft.tuners.lora import Linear  # lazy: peft

    from mar_st.model.lora_linear import LoRALinear  # lazy: peft

    known = type(layer) in (Linear, LoRALinear)
    return known and not layer.lora_variant and not any(layer.lora_bias.values())


def _fold(layer: Any, target: torch.dtype) -> tuple[float, float]:
    """Add the update of a layer to its weight, a few rows at a time, if possible without another copy.

    Returns:
        Squared norms of the update, and of what rounding changed.

    Raises:
        ValueError: The sum is not finite.
    """
    for name, parameter in layer.named_parameters():
        if not name.startswith("base_layer."):
            parameter.data = parameter.data.float()
    base = layer.get_base_layer()
    weight: torch.Tensor = base.weight.data
    delta: torch.Tensor = sum(layer.get_delta_weight(adapter).detach() for adapter in layer.active_adapters)
    into = weight if weight.dtype == target else torch.empty_like(weight, dtype=target)
    rows = max(1, _MERGE_BLOCK // weight.shape[1])
    update = lost = 0.0
    for start in range(0, len(weight), rows):
        part = delta[start : start + rows]
        exact = weight[start : start + rows].float().add(part)
        if not torch.isfinite(exact).all():
            raise ValueError("The LoRA adapter gives weights that are not finite.")
        into[start : start + rows] = exact
        update += float(torch.linalg.vector_norm(part)) ** 2
        lost += float(torch.linalg.vector_norm(exact.sub_(into[start : start + rows]))) ** 2
    base.weight.data = into
    base.to(target)
    return update, lost


def _fold_by_peft(layer: Any, target: torch.dtype) -> tuple[float, float]:
    """Merge updates that `_fold` does not support (DoRA, biases) with peft."""
    base = layer.get_base_layer()
    before: torch.Tensor = base.weight.data
    layer.float()  # the adapter and the layer below it
    layer.merge(safe_merge=True)
    exact: torch.Tensor = base.weight.data
    base.to(target)
    return (
        float((exact - before.float()).square().sum()),
        float((base.weight.data.float() - exact).square().sum()),
    )
