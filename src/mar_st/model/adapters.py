"""LoRA on one encoder: target layers, adding, merging.

sentence-transformers' `add_adapter` walks the whole model and so puts LoRA on both routes of a `Router`;
these functions act only on the given transformer. They use the adapter support of transformers, which saves
an encoder with an unmerged adapter as an ordinary PEFT folder. A whole MAR is saved after merging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from mar_st.files import load_package

if TYPE_CHECKING:
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import PreTrainedModel

#: Linear layers that no vector goes through: BERT's pooler, and heads.
_NON_ENCODER_LAYERS = {"pooler", "head", "lm_head", "cls"}


def has_adapter(encoder: nn.Module) -> bool:
    """Return True if a module is a Transformer with a LoRA adapter that has not been merged."""
    return bool(getattr(getattr(encoder, "model", None), "_hf_peft_config_loaded", False))


def add_lora(transformer: Transformer, *, r: int = 32, alpha: int = 64, dropout: float = 0.1) -> None:
    """Freeze the encoder and give all its linear layers a trainable LoRA adapter, in place.

    The adapter is float32 whatever the encoder is stored in: optimiser steps are rounded away in bfloat16.

    Args:
        transformer: The module whose `model` is adapted.
        r: Rank of the update.
        alpha: Scale of the update; the factor is `alpha / r`.
        dropout: Dropout on the adapter's input while training.

    Raises:
        MarError: peft is not installed.
    """
    load_package("peft", extra="train")
    from peft import LoraConfig, TaskType  # lazy: peft

    model: Any = transformer.model
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and _NON_ENCODER_LAYERS.isdisjoint(name.split("."))
    ]
    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=r,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=layers,
    )
    model.requires_grad_(False)
    model.add_adapter(config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def merge_lora(transformer: Transformer) -> None:
    """Merge the LoRA adapter into the weights, in place; an encoder without one does not change.

    The sum of weights and update is computed in float32, one layer at a time, and rounded once. An update is
    small compared with the weights, so a 16-bit sum keeps only a part of it: bfloat16 has 8 significant bits.

    Args:
        transformer: The module whose `model` carries the adapter.

    Raises:
        MarError: The encoder has an adapter and peft is not installed.
        ValueError: Merging would give weights that are not finite.
    """
    if not has_adapter(transformer):
        return
    load_package("peft", extra="train")
    model: PreTrainedModel = transformer.model
    for name, layer in _adapted(model):
        if hasattr(layer, "unload_and_optionally_merge_module"):  # a module that was trained in full
            original = getattr(layer, "original_module", None)
            before = None if original is None else next((one.dtype for one in original.parameters()), None)
            merged: Any = layer.unload_and_optionally_merge_module(True, True, None)
            merged.to(before)
        else:
            merged = layer.get_base_layer()
            target = merged.weight.dtype
            layer.float()  # the adapter and the layer below it
            layer.merge(safe_merge=True)
            merged.to(target)
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, merged)
    model._hf_peft_config_loaded = False
    if hasattr(model, "peft_config"):
        del model.peft_config
    # Loading an adapter leaves the renaming of its parameters here, which saving would apply in reverse.
    vars(model).pop("_weight_conversions", None)


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
