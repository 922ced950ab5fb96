"""Export of a lookup encoder: a saved model whose table is int8, with a scale per feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.export.measure import measure
from mar_st.files import write_text
from mar_st.model.digest import SPACE_FILE
from mar_st.modules.layout import saved_chain
from mar_st.online.lookup import NumpyLookupEncoder

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from mar_st.online.torch_encoder import TorchEncoder


def write_lookup(encoder: TorchEncoder, part: Path, texts: list[str], original: np.ndarray) -> dict[str, Any]:
    """Write a lookup encoder with its table in int8, and measure it with numpy.

    Args:
        encoder: The encoder; it starts with a `LookupEncoder`.
        part: An empty folder.
        texts: Queries to measure on.
        original: Their vectors.

    Returns:
        The measurements, see `measure`, with `dim` and `bytes`.

    Raises:
        MarError: Another module than a Normalize follows, or a value is not finite.
    """
    first: Any
    first, *rest = encoder.modules
    if not all(isinstance(module, Normalize) for module in rest):
        raise MarError(
            f"{[type(module).__name__ for module in rest]} after a LookupEncoder are not exported."
        )
    table = first.embedding.weight.detach()
    scales = (table.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    tensors = {
        "embedding.weight": (table / scales[:, None]).round().to(torch.int8),
        "scales": scales,
        "weight": first.weight.detach(),
        "bias": first.bias.detach(),
    }
    if not all(tensor.isfinite().all() for tensor in (table, *tensors.values())):
        raise MarError("The encoder holds values that are not finite.")
    SentenceTransformer(
        modules=encoder.modules,
        prompts={name: text or "" for name, text in encoder.prompts.items()},
        similarity_fn_name=encoder.model.similarity_fn_name,
        device="cpu",
    ).save_pretrained(str(part), create_model_card=False)
    save_file(tensors, saved_chain(part, "query")[0].path / "model.safetensors")
    if encoder.space is not None:
        write_text(part / SPACE_FILE, f"{encoder.space}\n")
    written = NumpyLookupEncoder.open(part)
    assert written is not None  # noqa: S101 -- it was written above
    size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    return {"dim": encoder.dim, **measure(written, texts, original), "bytes": size}
