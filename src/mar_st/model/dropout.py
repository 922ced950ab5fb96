"""Dropout of a loaded encoder."""

from __future__ import annotations

from typing import Any

from torch import nn


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
