"""Models by name: their folder, their digest, and loading of the document side alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.model.digest import document_parts, model_digest, space_of
from mar_st.model.native_gte import fetch
from mar_st.model.opening import open_model

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    from mar_st.encode.settings import Dtype
    from mar_st.kernels.linear import Kernel


def resolve(source: str | Path) -> Path:
    """Return the folder of a model: a given folder, that of a name such as `mar-mini`, or a Hub download.

    Raises:
        MarError: The model does not exist, or it has no document side.
    """
    folder = fetch(source)
    if document_parts(folder) is None:
        raise MarError(
            f"{source} has no document encoder, so it cannot encode a corpus. Give the whole model."
        )
    return folder


def model_identity(source: str | Path) -> dict[str, Any]:
    """Return a model's name, the digest of its document side's files, and its space; no weights are loaded.

    Raises:
        MarError: See `resolve`.
    """
    folder = resolve(source)
    digest = model_digest(folder, route="document")
    return {"name": str(source), "digest": digest, "space": space_of(folder)}


def load_model(
    source: str | Path, dtype: Dtype, device: str, *, kernel: Kernel = "torch"
) -> SentenceTransformer:
    """Return a model on its device; of a MAR, only the document side.

    Args:
        source: Folder, Hub name or `mar-mini`.
        dtype: `bfloat16`, `float32`, or `auto`: float32 on a CPU, else that of the stored weights.
        device: Device, such as `cpu` or `cuda:1`.
        kernel: Implementation of linear layers; with any other than `torch`, the model can only be used for
            inference.

    Raises:
        MarError: See `resolve`; also raised if this machine lacks the kernel.
    """
    import torch  # lazy: torch

    from mar_st.kernels.linear import use_kernel  # lazy: torch

    folder = resolve(source)
    torch_dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(dtype)
    if dtype == "auto" and device == "cpu":
        torch_dtype = torch.float32
    options: dict[str, Any] = {
        "device": device,
        "model_kwargs": {"dtype": torch_dtype} if torch_dtype else {},
    }
    model = open_model(folder, routes="document", **options)
    use_kernel(model, kernel)
    return model
