"""Digest of loaded modules, which determine the vectors of a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.modules import Transformer

from mar_st.model.fingerprint import Weight, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Settings of a transformer that say where it comes from or how it is computed, not what it computes.
_NON_IDENTITY_SETTINGS = {
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
    "use_cache",
}


def modules_digest(modules: Sequence[Any]) -> str:
    """Return the sha256 over modules: kinds, settings, tokenizers, and every weight in its dtype.

    It does not depend on the folder they came from, so two identical trainings give the same digest.
    """
    return fingerprint((_settings(module), _weights(module)) for module in modules)


def _settings(module: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"type": type(module).__name__}
    if isinstance(module, Transformer):
        config = module.model.config.to_diff_dict()
        settings["config"] = {
            name: value for name, value in config.items() if name not in _NON_IDENTITY_SETTINGS
        }
        settings["max_length"] = module.max_seq_length
        settings["tokenizer"] = _tokenizer(module.tokenizer)
    elif hasattr(module, "get_config_dict"):
        settings["config"] = module.get_config_dict()
    return settings


def _weights(module: Any) -> Iterator[Weight]:
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy()
        yield Weight(name, str(tensor.dtype), tuple(tensor.shape), flat)


def _tokenizer(tokenizer: Any) -> Any:
    """Describe a tokenizer as JSON, without the truncation and padding that earlier calls left in it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"type": type(tokenizer).__name__, "vocabulary": getattr(tokenizer, "get_vocab", dict)()}
    content = json.loads(backend.to_str())
    return {name: value for name, value in content.items() if name not in ("truncation", "padding")}
