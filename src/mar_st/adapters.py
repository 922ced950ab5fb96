"""LoRA on one encoder: adding, merging.

sentence-transformers' `add_adapter` walks the whole model and so puts LoRA on both routes of a `Router`;
these functions act on the one transformer they are given. They use the adapter support of transformers, so an
adapter that is kept is saved as an ordinary PEFT folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import PreTrainedModel

#: Projections of a Qwen-style layer that carry LoRA in MAR (r = 32, alpha = 64).
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _need_peft() -> None:
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise ImportError("LoRA needs the peft package: pip install 'medteb[train]'") from error


def has_adapter(transformer: Transformer) -> bool:
    """Whether the encoder carries a LoRA adapter that has not been merged."""
    return bool(getattr(transformer.model, "_hf_peft_config_loaded", False))


def add_lora(
    transformer: Transformer,
    *,
    r: int = 32,
    alpha: int = 64,
    dropout: float = 0.1,
    targets: Sequence[str] = LORA_TARGETS,
) -> None:
    """Freeze the encoder and give it a trainable LoRA adapter, in place.

    Args:
        transformer: The module whose `model` is adapted.
        r: Rank of the update.
        alpha: Scale of the update; the factor is `alpha / r`.
        dropout: Dropout on the adapter's input while training.
        targets: Names of the linear layers to adapt.

    Raises:
        ImportError: peft is not installed.
        ValueError: The model has none of the target layers.
    """
    _need_peft()
    from peft import LoraConfig, TaskType

    names = {name.rsplit(".", 1)[-1] for name, _ in transformer.model.named_modules()}
    if not names & set(targets):
        raise ValueError(
            f"{type(transformer.model).__name__} has none of the LoRA targets {', '.join(targets)}; its "
            f"layers are called {', '.join(sorted(name for name in names if name and not name.isdigit()))}."
        )
    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=r,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=list(targets),
    )
    transformer.model.requires_grad_(False)
    transformer.model.add_adapter(config)


def merge_lora(transformer: Transformer) -> None:
    """Fold the LoRA adapter into the weights, in place; an encoder without one is left as it is.

    Raises:
        ImportError: The encoder has an adapter and peft is not installed.
        ValueError: Merging would give weights that are not finite.
    """
    if not has_adapter(transformer):
        return
    _need_peft()
    from peft.tuners.tuners_utils import BaseTunerLayer

    model: PreTrainedModel = transformer.model
    adapted: list[tuple[str, Any]] = [
        (name, layer) for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)
    ]
    for name, layer in adapted:
        layer.merge(safe_merge=True)
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, layer.get_base_layer())
    model._hf_peft_config_loaded = False
    if hasattr(model, "peft_config"):
        del model.peft_config
