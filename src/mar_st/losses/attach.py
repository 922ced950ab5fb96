"""Attaching gradients that are already computed to a value, as part of the autograd graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["attach"]


class _Attach(torch.autograd.Function):
    """A value whose gradients are already known; autograd scales and propagates them."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        del tensors
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, ...]:
        (scale,) = outputs
        return (scale, None, *(scale.to(gradient.dtype) * gradient for gradient in ctx.gradients))


def attach(value: Tensor, gradients: dict[int, Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """Return `value` with the gradients of some tensors attached.

    Args:
        value: A value that does not need gradients, such as a loss.
        gradients: Gradients of the value, by index into `tensors`.
        tensors: Tensors that the gradients belong to.
    """
    chosen = [tensors[index] for index in gradients]
    if not chosen:
        return value
    attached: Tensor = _Attach.apply(  # type: ignore[no-untyped-call]
        value, [g.to(t.dtype) for g, t in zip(gradients.values(), chosen, strict=True)], *chosen
    )
    return attached
