"""Description of a saved MAR, read from its files without loading weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors import safe_open

from mar_st.errors import MarError
from mar_st.files import read_json
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
        MarError: The folder is not a saved MAR, or a file of it is missing or broken.
    """
    root = model_folder(folder)
    if root is None:
        raise MarError(f"There is no folder {folder}. Give a saved MAR, or one of {', '.join(KNOWN_MODELS)}.")
    if not (root / ROUTER_FILE).is_file():
        raise MarError(
            f"{root} holds no MAR (no {ROUTER_FILE}). A model with a single encoder has no routes: use it "
            "with mar encode or SentenceTransformer, or as one side of a MAR (MAR.from_encoders)."
        )
    try:
        settings = read_json(root / "config_sentence_transformers.json")
        names = read_router(root)["structure"]
        order = sorted(names, key=lambda name: (name == "document", name != "query"))
        return {
            "routes": {route: _route(root, route) for route in order},
            "similarity": settings.get("similarity_fn_name"),
            "prompts": settings.get("prompts", {}),
        }
    except (OSError, ValueError, KeyError) as error:
        raise MarError(
            f"{root} is an incomplete or broken MAR ({type(error).__name__}: {error}). Save or copy it again."
        ) from error


def _route(root: Path, route: str) -> dict[str, Any]:
    chain = [part for part in saved_chain(root, route) if part.path != root]
    modules = [part.path for part in chain]
    present = all(path.is_dir() for path in modules)
    content: dict[str, Any] = {
        "modules": [path.relative_to(root).as_posix() for path in modules],
        "present": present,
    }
    if present:
        kind = chain[0].type.rpartition(".")[2]
        file = modules[0] / "config.json"
        config = read_json(file) if file.is_file() or kind.endswith("Transformer") else {}
        encoders = [path for path in modules if "Dense" not in path.name]
        content |= {
            "model_type": config.get("model_type") or kind,
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
