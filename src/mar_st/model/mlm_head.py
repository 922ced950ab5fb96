"""The masked-LM head of a pre-trained backbone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from mar_st.model.native_gte import fetch, native
from mar_st.modules.layout import transformer_folder
from mar_st.modules.retromae_decoder import MLMHead


def source_head(source: str, revision: str | None = None) -> MLMHead | None:
    """Return the masked-LM head of a folder or Hub name, with its weights.

    Reads the models of transformers' `AutoModelForMaskedLM`, such as BERT, XLM-RoBERTa, ModernBERT and `gte`.
    Folders that sentence-transformers saved hold only an encoder.

    Returns:
        The head, or `None` if the architecture has none, the files hold no weights of it, or it is not a
        linear layer, a norm and an output over the vocabulary.
    """
    try:
        with native(transformer_folder(fetch(source, revision))) as folder:
            model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    except ValueError:  # no masked-LM class for this architecture
        return None
    return _extract(model, set(info["missing_keys"]))


def _extract(model: Any, missing: set[str]) -> MLMHead | None:
    inner = {id(module) for module in model.base_model.modules()}
    output = model.get_output_embeddings()
    parts = {
        name: module
        for name, module in model.named_modules()
        if id(module) not in inner and module is not output
    }
    dense = {name: module for name, module in parts.items() if isinstance(module, nn.Linear)}
    norm = {name: module for name, module in parts.items() if isinstance(module, nn.LayerNorm)}
    if output is None or len(dense) != 1 or len(norm) != 1:
        return None
    if any(key.startswith(f"{name}.") for name in (*dense, *norm) for key in missing):
        return None
    (linear,), (layer_norm,) = dense.values(), norm.values()
    head = MLMHead(linear.in_features, output.weight.shape[0])
    if linear.weight.shape != head.dense.weight.shape:
        return None
    head.norm.eps = layer_norm.eps
    for own, source in ((head.dense, linear), (head.norm, layer_norm)):
        own.weight.data.copy_(source.weight.data)
        bias = getattr(source, "bias", None)  # ModernBERT has none
        own.bias.data.copy_(torch.zeros_like(own.bias) if bias is None else bias.data)
    if output.bias is not None:
        head.bias.data.copy_(output.bias.data)
    return head
