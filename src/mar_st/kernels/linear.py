"""Linear layers of a model on a CPU: torch's, or those of oneDNN where they are faster and as accurate.

torch multiplies float32 matrices with MKL, which leaves the 512-bit units of non-Intel processors unused;
oneDNN, which torch ships, is about twice as fast there. In bfloat16 torch uses oneDNN as well, but reorders
the weights in every product; here they are reordered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import nn

from mar_st.errors import MarError
from mar_st.kernels.build import processor

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Kernel: TypeAlias = Literal["torch", "onednn"]

#: Extensions of processors that multiply bfloat16.
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})

#: Rows that oneDNN lays weights out for; it takes any number.
_LAYOUT_ROWS = 512


def best_kernel(dtype: torch.dtype = torch.float32) -> Kernel:
    """Return the fastest kernel for float32 or bfloat16 linear layers on this processor.

    The choice follows the processor's flags, not a measurement, so that a resumed run makes the same one.
    """
    cpu = processor()
    if dtype == torch.float32:
        faster = cpu.maker != "GenuineIntel" and "avx512f" in cpu.flags
    else:
        faster = bool(cpu.flags & BFLOAT16_FLAGS)
    return "onednn" if faster and has_onednn(dtype) else "torch"


def use_kernel(model: SentenceTransformer, kernel: Kernel) -> None:
    """Let a kernel compute the linear layers of a model's transformers, in place; for inference only.

    Args:
        model: A model on the CPU, in float32 or bfloat16.
        kernel: Kernel that this machine has.

    Raises:
        MarError: This machine does not have the kernel.
    """
    from sentence_transformers.base.modules import Transformer  # lazy: sentence_transformers

    if kernel == "torch":
        return
    dtype = model.dtype or torch.float32
    if not has_onednn(dtype):
        raise MarError(
            "This run was started on a processor with other kernels (missing here: torch with oneDNN). "
            "Encode with dtype float32 into another folder."
        )
    for backbone in [module.model for module in model.modules() if isinstance(module, Transformer)]:
        for parent in list(backbone.modules()):
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear and layer.weight.dtype == dtype:
                    setattr(parent, name, OneDNNLinear(layer.weight, layer.bias))


class OneDNNLinear(nn.Module):
    """A linear layer that oneDNN computes, in float32 or bfloat16; for inference only.

    Args:
        weight: `(out, in)` float32 or bfloat16.
        bias: `(out,)` of the same type, or `None`.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = _ops()._reorder_linear_weight(weight.detach().contiguous(), _LAYOUT_ROWS)
        self.bias = None if bias is None else bias.detach().contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`(..., in)` to `(..., out)`, both of the type of the weight."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.out_features)
        flat = x.reshape(-1, self.in_features).contiguous()
        output: torch.Tensor = _ops()._linear_pointwise(flat, self.packed, self.bias, "none", [], "")
        return output.reshape(*x.shape[:-1], self.out_features)


def _ops() -> Any:
    return torch.ops.mkldnn


def has_onednn(dtype: torch.dtype = torch.float32) -> bool:
    """Return True if this torch has oneDNN's linear layer and its results agree with torch's own."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(5, 48, generator=generator), torch.randn(40, 48, generator=generator)
    try:
        product = OneDNNLinear(w.to(dtype), None)(x.to(dtype)).float()
    except (AttributeError, RuntimeError):
        return False
    return bool((product - x @ w.T).abs().max() < (1e-4 if dtype == torch.float32 else 0.2))
