"""Description of a saved MAR, read from its files without loading weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors import safe_open

from mar_st.errors import MarError
from mar_st.files import read_record
from mar_st.model.names import KNOWN_MODELS, model_folder
from mar_st.modules.layout import ROUTER_FILE, read_router, saved_chain


def describe(folder: str | Path) -> dict[str, Any]:
    """Return routes, architectures, widths, parameters and prompts of a saved MAR.

    Args:
        folder: A saved MAR, or a name such as `mar-mini`.

    Returns:
        A JSON-ready dict; `parameters` counts the elements of the safetensors files of each route, `None` for
        a route with weights of another format.

    Raises:
        MarError: The folder is not a saved MAR, or its list of routes is damaged.
    """
    root = model_folder(folder)
    if root is None or not (root / ROUTER_FILE).is_file():
        raise MarError(
            f"{folder} is no folder of a MAR (no {ROUTER_FILE}); give one, or one of "
            f"{', '.join(KNOWN_MODELS)}. A model with a single encoder has no routes: use it with mar encode "
            "or SentenceTransformer, or as one side of a MAR (MAR.from_encoders)."
        )
    settings = read_record(root / "config_sentence_transformers.json") or {}
    order = sorted(read_router(root)["structure"], key=lambda name: (name == "document", name != "query"))
    return {
        "routes": {route: _route(root, route) for route in order},
        "similarity": settings.get("similarity_fn_name"),
        "prompts": settings.get("prompts", {}),
    }


def _route(root: Path, route: str) -> dict[str, Any]:
    chain = [part for part in saved_chain(root, route) if part.path != root]
    present = all(part.path.is_dir() for part in chain)
    content: dict[str, Any] = {
        "modules": [part.path.relative_to(root).as_posix() for part in chain],
        "present": present,
    }
    if present:
        config = read_record(chain[0].path / "config.json") or {}
        encoders = [part.path for part in chain if "Dense" not in part.path.name]
        content |= {
            "model_type": config.get("model_type") or chain[0].type.rpartition(".")[2],
            "hidden_size": config.get("hidden_size") or config.get("embedding_dimension"),
            "layers": config.get("num_hidden_layers"),
            "parameters": sum(map(count_parameters, encoders)) or None,
        }
    return content


def count_parameters(folder: str | Path) -> int:
    """Return the number of elements in the safetensors files below `folder`, read from their headers only."""
    total = 0
    for path in Path(folder).rglob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    return total
