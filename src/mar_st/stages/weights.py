"""Interpolation of a stage's final weights with those it started from (WiSE-FT)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


@contextmanager
def mixed_with_start(model: nn.Module, share: float) -> Iterator[None]:
    """Interpolate the weights of a model with those it has now, in place, when the block ends.

    Each becomes `(1 - share) * trained + share * start` (Wortsman et al. 2022, WiSE-FT): fine-tuning on few
    texts forgets what the encoder knew of others, and interpolated weights often retrieve better than the
    weights at either end. Parameters that need no gradient when the block begins are left as they are. The
    start is kept on the CPU.

    Args:
        model: The model that the block trains.
        share: Share of the weights at the start, from 0 to 1; with 0 nothing is copied or changed.
    """
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    start = {name: weight.detach().cpu().clone() for name, weight in trained} if share else {}
    yield
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in start:
                before = start[name].to(weight.device, torch.float32)
                weight.copy_(torch.lerp(weight.float(), before, share))
