"""Matryoshka truncation as a module that plain sentence-transformers can load, in any dtype.

sentence-transformers truncates in `encode`, after every module and so after `Normalize`, and for all routes.
MAR must cut only the document route, before or after normalisation, and stock losses need both routes to have
the same width. Of sentence-transformers' own classes only a `Dense` can do that: one without bias or
activation, whose weight is the first rows of the identity. That product is exact in float32, bfloat16 and
float16. sentence-transformers casts top-level modules to the dtype of the first encoder, those inside its
`Router` stay float32, so `MAR` keeps the cut in a second `Router` behind the encoders. A saved `Dense` cannot
say that it is frozen; `MAR` freezes it when it loads one.
"""

from __future__ import annotations

from typing import TypeGuard

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
    weight = torch.eye(out_features, in_features)
    layer = Dense(
        in_features, out_features, bias=False, activation_function=nn.Identity(), init_weight=weight
    )
    return layer.requires_grad_(False)


def is_truncation(module: nn.Module) -> TypeGuard[Dense]:
    """Return True for a bias-free, identity-activated `Dense` whose weight is `eye(out, in)`."""
    if (
        not isinstance(module, Dense)
        or module.bias
        or not isinstance(module.activation_function, nn.Identity)
        or module.out_features > module.in_features
    ):
        return False
    weight = module.linear.weight.detach()
    return bool(torch.equal(weight, torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)))
