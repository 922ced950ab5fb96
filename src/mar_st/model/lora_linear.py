"""LoRA layers for mixed precision that pass over activations less often than peft's.

In mixed precision, peft casts the input of each adapted layer to the adapter's float32 before dropout, and
autocast casts it back; the update is then scaled and added in two passes over the layer's output. Here the
input is not cast (with dropout it is rounded once either way), the scale is applied to the few columns
between the two matrices, and the product of the second one is added to the output while it is computed. In a
training step of Qwen3-4B (bf16, rank 32, dropout 0.1, checkpointing) all operations but matrix products move
3.7 instead of 6.0 MB per token and layer (`benchmarks/lora_traffic.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import nn


class LoRALinear(Linear):
    """A linear layer of peft with one plain LoRA adapter; anything else is computed by peft.

    The weights, their names and their gradients are peft's. In half precision the sum of output and update is
    rounded once instead of three times.
    """

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the output of the layer and its update, `(..., out_features)`."""
        name = None if args or kwargs else self._plain_adapter(x)
        if name is None:
            output: torch.Tensor = super().forward(x, *args, **kwargs)
            return output
        down, up = self._matrices(name)
        result: torch.Tensor = self.base_layer(x)
        update = down(self.lora_dropout[name](x)) * self.scaling[name]
        return torch.addmm(result.flatten(0, -2), update.flatten(0, -2), up.weight.T).view_as(result)

    def _matrices(self, name: str) -> tuple[nn.Linear, nn.Linear]:
        down: Any = self.lora_A[name]
        up: Any = self.lora_B[name]
        return down, up

    def _plain_adapter(self, x: torch.Tensor) -> str | None:
        """Return the name of the adapter if it can be computed here."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1 or self.lora_variant:
            return None
        name = str(self.active_adapters[0])
        if name not in self.lora_A or self.lora_bias[name]:
            return None
        down, up = self._matrices(name)
        if up.weight.numel() != up.in_features * up.out_features:
            return None  # the weight is sharded, and gathered when the layer is called
        base: Any = self.get_base_layer()
        alike = x.dtype == down.weight.dtype == base.weight.dtype
        return name if alike or torch.is_autocast_enabled(x.device.type) else None


def replace_layers(model: nn.Module) -> None:
    """Let the plain LoRA layers of a model compute as `LoRALinear`, in place."""
    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = LoRALinear
