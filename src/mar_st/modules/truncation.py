"""Matryoshka truncation as a module that plain sentence-transformers can load.

sentence-transformers truncates in `encode`, after every module and so after `Normalize`, and for all routes
alike. MAR must cut the document route alone, before or after normalisation. A `Dense` layer without bias or
activation, whose weight is the first rows of the identity, does exactly that: multiplying by 0 and 1 and
adding zeros is exact in every floating-point format.
"""

from __future__ import annotations

import torch
from sentence_transformers.base.modules import Dense
from torch import nn


def truncation(in_features: int, out_features: int) -> Dense:
    """Build the layer that keeps the first `out_features` of `in_features` dimensions; its weight is frozen.

    Args:
        in_features: Width of the incoming embedding.
        out_features: Width to keep (the Matryoshka dimension).

    Returns:
        A frozen `Dense` mapping `(batch, in_features)` to `(batch, out_features)`.

    Raises:
        ValueError: `out_features` is not between 1 and `in_features`.
    """
    if not 1 <= out_features <= in_features:
        raise ValueError(f"Cannot keep {out_features} of {in_features} dimensions; give 1 to {in_features}.")
    layer = Dense(
        in_features,
        out_features,
        bias=False,
        activation_function=nn.Identity(),
        init_weight=torch.eye(out_features, in_features),
    )
    return layer.requires_grad_(False)


def is_truncation(module: nn.Module) -> bool:
    """Whether `module` is a truncation: a bias-free identity-activated `Dense` with weight `eye(out, in)`."""
    if (
        not isinstance(module, Dense)
        or module.bias
        or not isinstance(module.activation_function, nn.Identity)
    ):
        return False
    weight = module.linear.weight
    return bool(torch.equal(weight, torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)))
