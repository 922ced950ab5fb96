"""Half precision on processors that lack instructions for it: computing in float32 instead."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from mar_st.kernels.processor import available_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["is_emulated", "is_native", "use_native_dtype"]


def use_native_dtype(model: torch.nn.Module, model_kwargs: Mapping[str, Any] | None = None) -> bool:
    """Convert a model to float32 if its processor has no instructions for the dtype of its weights.

    Such a processor computes correctly in float16 and bfloat16, but slowly: on an AMD EPYC with AVX2,
    multilingual-e5-small takes 5.5 times as long in float16 as in float32 for 256 texts. Weights on a GPU
    stay as they are. float32 takes twice the memory of half precision, so weights that would not fit stay
    as they are, too, with a warning.

    Args:
        model: Model with its weights loaded, changed in place.
        model_kwargs: Options that the model was loaded with; nothing is converted if they name a dtype.

    Returns:
        True if the model was converted.
    """
    options = model_kwargs or {}
    if "dtype" in options or "torch_dtype" in options:
        return False
    concerned = _emulated(model)
    if not concerned:
        return False
    needed, available = 4 * sum(p.numel() for p in concerned), available_memory()
    if available is not None and needed > available:
        stored = str(concerned[0].dtype).removeprefix("torch.")
        warnings.warn(
            f"This processor has no instructions for {stored}, so the model is several times slower than in "
            f"float32, which would take {needed / 2**30:.1f} GiB; {available / 2**30:.1f} GiB are available. "
            "Use a GPU or a machine with more memory.",
            stacklevel=2,
        )
        return False
    model.float()
    return True


def is_emulated(model: torch.nn.Module) -> bool:
    """Return True if `use_native_dtype` would convert the model, memory permitting."""
    return bool(_emulated(model))


def _emulated(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    import torch  # lazy: torch

    half = {dtype for dtype in (torch.bfloat16, torch.float16) if not is_native(dtype)}
    return [p for p in model.parameters() if p.dtype in half and p.device.type == "cpu"]


def is_native(dtype: torch.dtype) -> bool:
    """Return True if this processor has instructions for a half-precision dtype, or torch cannot tell."""
    import torch  # lazy: torch

    name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    try:
        return bool(getattr(torch.ops.mkldnn, name)())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return True
