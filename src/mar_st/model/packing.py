"""Storing weights in a smaller dtype than the one they are computed in."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mar_st.errors import MarError
from mar_st.files import finished, refresh_digests

DTYPES = ("float16", "bfloat16", "float32")


def store_as(folder: str | Path, dtype: str = "float16") -> int:
    """Rewrite every safetensors file below `folder` with its floating-point tensors in `dtype`.

    The configuration files keep the dtype they declare, so transformers converts the weights back when it
    loads them: the files are half as large, and the computation does not change. Vectors change by the
    rounding of the weights.

    Args:
        folder: A saved model.
        dtype: `float16`, `bfloat16` or `float32`.

    Returns:
        Bytes of all safetensors files afterwards.

    Raises:
        MarError: The dtype is another one; nothing is changed.
    """
    if dtype not in DTYPES:
        raise MarError(
            f"Weights are stored as {', '.join(DTYPES)}; got {dtype!r}. For 8 bits see mar_st.model.packed."
        )
    target: torch.dtype = getattr(torch, dtype)
    size = 0
    for path in sorted(Path(folder).rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
        packed = {
            name: tensor.to(target).contiguous() if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        with finished(path) as part:
            save_file(packed, str(part), metadata=metadata)
        size += path.stat().st_size
    refresh_digests(Path(folder), lambda name: name.endswith(".safetensors"))
    return size
