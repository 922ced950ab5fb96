"""Half precision: storing weights in it, and computing in float32 on processors that lack it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mar_st.files import finished

if TYPE_CHECKING:
    from collections.abc import Mapping


def store_as(folder: str | Path, dtype: str = "float16") -> int:
    """Rewrite every safetensors file below a saved model with its floating-point tensors in a dtype.

    The configuration files keep the dtype they declare, so transformers converts the weights back when it
    loads them: the files are half as large, and the computation does not change. Vectors change by the
    rounding of the weights.

    Returns:
        Bytes of all safetensors files afterwards.
    """
    size = 0
    for path in sorted(Path(folder).rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
        stored = {
            name: tensor.to(getattr(torch, dtype)).contiguous() if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        with finished(path) as part:
            save_file(stored, str(part), metadata=metadata)
        size += path.stat().st_size
    return size


def use_native_dtype(model: torch.nn.Module, model_kwargs: Mapping[str, Any] | None = None) -> None:
    """Convert a model to float32 if its processor has no instructions for the dtype of its weights.

    Such a processor computes correctly in float16 and bfloat16, but slowly: on an AMD EPYC with AVX2,
    multilingual-e5-small takes 5.5 times as long in float16 as in float32 for 256 texts. Weights on a GPU
    stay as they are.

    Args:
        model: Model with its weights loaded, changed in place.
        model_kwargs: Options that the model was loaded with; nothing is converted if they name a dtype.
    """
    if {"dtype", "torch_dtype"} & set(model_kwargs or {}):
        return
    half = {dtype for dtype in (torch.bfloat16, torch.float16) if not is_native(dtype)}
    if any(one.dtype in half and one.device.type == "cpu" for one in model.parameters()):
        model.float()


def is_native(dtype: torch.dtype) -> bool:
    """Return True if this processor has instructions for a half-precision dtype, or torch cannot tell."""
    name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    try:
        return bool(getattr(torch.ops.mkldnn, name)())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return True
