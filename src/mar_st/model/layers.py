"""The layers of a loaded transformer: keeping some of them, and their dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers.base.modules.module import Module


def layer_stack(model: Any, *, what: str = "layers") -> tuple[str, nn.ModuleList]:
    """Return the name and the list of a transformer's layers.

    Args:
        model: A transformers model.
        what: The setting that asks for them, for the message.

    Raises:
        MarError: The list of the architecture's layers cannot be found.
    """
    count = model.config.num_hidden_layers
    for name, module in model.named_modules():
        known = name.rpartition(".")[2] in ("layers", "layer", "h")
        if isinstance(module, nn.ModuleList) and len(module) == count and known:
            return name, module
    raise MarError(f"{what}: {type(model).__name__} has no list of {count} layers to choose from.")


def keep_layers(
    encoder: Sequence[Module], layers: Sequence[int], *, what: str = "layers_of_document"
) -> None:
    """Cut a transformer to some of its layers, in place (KALE; Wang & Lyu).

    Args:
        encoder: Modules that start with a Transformer.
        layers: Indices of the layers to keep, in their new order.
        what: The setting that asks for them, for the message.

    Raises:
        MarError: The list of the architecture's layers cannot be found, or has fewer layers.
    """
    transformer: Any = encoder[0]
    model = transformer.model
    name, stack = layer_stack(model, what=what)
    count = len(stack)
    if not layers or min(layers) < 0 or max(layers) >= count or len(set(layers)) < len(layers):
        raise MarError(
            f"{what} is {list(layers)}; the encoder has {count} layers, 0 to {count - 1}, and each can be "
            "kept once."
        )
    kept = nn.ModuleList(stack[index] for index in layers)
    for position, layer in enumerate(kept):
        part: Any
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = position
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, kept)
    model.config.num_hidden_layers = len(kept)
    if kinds := getattr(model.config, "layer_types", None):
        model.config.layer_types = [kinds[index] for index in layers]


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout of a transformers model one probability, in place.

    The configuration is set as well, so that a saved model keeps it. Encoders were pre-trained with the
    dropout of their configuration (BERT: 0.1); if their vectors are learnt from fixed targets, it is noise.

    Args:
        model: The model.
        probability: Share of values that are set to zero while the model trains, 0 to 1.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        else:
            _set_numbers(module, vars(module), probability)
    config: Any = getattr(model, "config", None)
    if config is not None:
        _set_numbers(config, config.to_dict(), probability)


def _set_numbers(owner: Any, content: dict[str, Any], probability: float) -> None:
    """Set the numbers with dropout in their name; attention without a dropout module reads them."""
    for name, value in list(content.items()):
        if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(owner, name, probability)
