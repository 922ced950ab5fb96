"""Matryoshka truncation as a module that plain sentence-transformers can load, in any dtype.

sentence-transformers truncates in `encode`, after every module and so after `Normalize`, and for all routes.
MAR must cut only the document route, before or after normalisation, and stock losses need both routes to have
the same width. Of sentence-transformers' own classes only a `Dense` can do that: one without bias or
activation, whose weight is a multiple of the first rows of the identity. Two things make it safe:

- **Dtype.** sentence-transformers casts top-level modules to the dtype of the first encoder, those inside its
  `Router` stay float32. `MAR` therefore keeps the cut in a second `Router` behind the encoders.
- **Training.** A saved `Dense` cannot say that it is frozen. Between two normalisations the scale of its
  weight is free. At the scale `INERT_SCALE` its gradient shrinks by that factor, and so does a step of an
  optimiser in relation to the weight: fine-tuning with stock tools leaves the cut as it is, to rounding.
  `MAR` restores the exact weight when it loads one. A cut that no normalisation follows has the scale 1 and
  no protection.

Multiplying by 0 and by a power of two and adding zeros is exact in float32, bfloat16 and float16 (a component
of a unit vector times `INERT_SCALE` stays below 65,504).
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from sentence_transformers.base.modules import Dense
from torch import nn

#: Scale of the weight between two normalisations: the largest power of two that float16 carries.
INERT_SCALE = 2.0**15

#: How far an inert weight may have drifted, in relation to its scale, and still be a cut.
_MAX_DRIFT = 1e-2


def truncation(in_features: int, out_features: int, *, scale: float = 1.0) -> Dense:
    """Build the layer that keeps the first `out_features` of `in_features` dimensions; its weight is frozen.

    Args:
        in_features: Width of the incoming embedding.
        out_features: Width to keep (the Matryoshka dimension).
        scale: Factor for the kept dimensions; `INERT_SCALE` if normalisations precede and follow the layer.

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
        init_weight=scale * torch.eye(out_features, in_features),
    )
    return layer.requires_grad_(False)


def is_truncation(module: nn.Module) -> TypeGuard[Dense]:
    """Return True for a bias-free, identity-activated `Dense` with weight `scale * eye(out, in)`.

    The scale is 1 or `INERT_SCALE`; an inert weight may have drifted a little under a stock optimiser.
    """
    if (
        not isinstance(module, Dense)
        or module.bias
        or not isinstance(module.activation_function, nn.Identity)
        or module.out_features > module.in_features
    ):
        return False
    weight = module.linear.weight.detach()
    identity = torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)
    if is_inert(module):
        return bool(((weight / INERT_SCALE - identity).abs() <= _MAX_DRIFT).all())
    return bool(torch.equal(weight, identity))


def is_inert(module: Dense) -> bool:
    """Return True if the weight has the scale at which optimisers do not move it."""
    return bool(abs(module.linear.weight[0, 0].item() / INERT_SCALE - 1) <= _MAX_DRIFT)


def restore(module: Dense) -> None:
    """Write the exact weight of a truncation back, in place and in its dtype, and freeze it."""
    scale = INERT_SCALE if is_inert(module) else 1.0
    weight = module.linear.weight
    exact = scale * torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)
    if not torch.equal(weight, exact):
        weight.data.copy_(exact)
    module.requires_grad_(False)
