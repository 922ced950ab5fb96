"""Interpolation of a stage's final weights with those it started from (WiSE-FT)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of the parameters that are trained, by name, on the CPU."""
    return {
        name: weight.detach().cpu().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def mix_weights(model: nn.Module, start: Mapping[str, Tensor], share: float) -> None:
    """Interpolate the weights of a model with those it began with, in place.

    Each becomes `(1 - share) * trained + share * start` (Wortsman et al. 2022, WiSE-FT): fine-tuning on few
    texts forgets what the encoder knew of others, and interpolated weights often retrieve better than the
    weights at either end.

    Args:
        model: The trained model.
        start: Weights by name, see `copy_weights`; others stay as they are.
        share: Share of `start`, from 0 to 1.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in start:
                before = start[name].to(weight.device, torch.float32)
                weight.copy_(torch.lerp(weight.float(), before, share))
