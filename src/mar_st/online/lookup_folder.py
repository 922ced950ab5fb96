"""The lookup encoder of a model folder, run with numpy, without an export and without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mar_st.files import read_json
from mar_st.lookup.saved import CONFIG_KEYS, DICTIONARY, saved_features
from mar_st.model.fingerprint import Weight, fingerprint
from mar_st.model.space import space_of
from mar_st.modules.layout import is_query_route, query_routes, routers, saved_chain
from mar_st.online.lookup import LookupListing, NumpyLookupEncoder
from mar_st.online.protocol import EncoderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mar_st.model.fingerprint import Described
    from mar_st.modules.layout import SavedModule

#: Type of the lookup encoder in saved models, and suffix of the type of the module after it.
_LOOKUP_TYPE, _NORMALIZE_SUFFIX = "mar_st.lookup.module.LookupEncoder", ".Normalize"

#: Types of the table that numpy has, by safetensors' name.
_TYPES = {"F16": ("fp16", "torch.float16"), "F32": ("fp32", "torch.float32")}


def open_lookup(folder: Path, query: str | None = None) -> NumpyLookupEncoder | None:
    """Return the query encoder of a saved model if it is a lookup encoder; open only its files.

    Args:
        folder: A saved sentence-transformers model.
        query: Name of the query encoder, for a MAR with several; default `query`.

    Returns:
        `None` if the query encoder is of another kind, is missing, or has a dtype that numpy lacks.

    Raises:
        LookupEncoderError: Its files are damaged or do not match.
        EncoderError: Its files cannot be read.
    """
    name_and_chain = _parts(folder, query)
    if name_and_chain is None:
        return None
    name, chain = name_and_chain
    place, config = chain[0].path, _json(chain[0].path / "config.json")
    try:
        with safe_open(str(place / "model.safetensors"), framework="numpy") as file:
            kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 -- no mapping
            if len(kinds) != 1 or not kinds <= set(_TYPES):
                return None
            weights = {key: file.get_tensor(key) for key in sorted(file.keys())}
    except (SafetensorError, OSError) as error:
        raise EncoderError(f"{place} cannot be read ({error}); copy the encoder again.") from error
    precision, dtype = _TYPES[kinds.pop()]
    table = weights.get("embedding.weight")
    dictionary = place / DICTIONARY
    features = saved_features(
        str(place),
        config,
        dictionary if dictionary.is_file() else None,
        None if table is None else table.shape,
    )
    settings = _json(folder / "config_sentence_transformers.json")
    listing = LookupListing(
        model={"source": str(folder), "identity": _identity(chain, config, weights, dtype), "query": name},
        files={},
        features=len(features),
        dim=int(config["embedding_dimension"]),
        normalised=len(chain) > 1,
        similarity=settings.get("similarity_fn_name"),
        lengths=list(features.lengths),
        max_length=features.max_length,
        precision=precision,
        prompts={key: text or "" for key, text in (settings.get("prompts") or {}).items()},
        space=space_of(folder),
    )
    parts = {
        "weights": weights["weight"].astype(np.float32),
        "bias": weights["bias"].astype(np.float32),
        "scales": np.ones(len(features), dtype=np.float32),
        "table": weights["embedding.weight"],
    }
    return NumpyLookupEncoder(listing, features, parts)


def _parts(folder: Path, query: str | None) -> tuple[str | None, list[SavedModule]] | None:
    """Return the name of a query encoder and its saved modules; `None` unless it is a lookup encoder."""
    if not (folder / "modules.json").is_file():
        return None
    name = None
    if routers(folder):
        name = "query" if query is None else query
        if not is_query_route(name) or name not in query_routes(folder):
            return None
    elif query is not None:
        return None
    first, *others = saved_chain(folder, name or "query")
    if first.type != _LOOKUP_TYPE or not all(part.type.endswith(_NORMALIZE_SUFFIX) for part in others):
        return None
    return name, [first, *others]


def _identity(
    chain: Sequence[SavedModule], config: dict[str, Any], weights: dict[str, np.ndarray], dtype: str
) -> str:
    """Return the digest that `mar_st.model.modules_digest.modules_digest` gives for the loaded modules."""

    def described() -> Iterator[Described]:
        tensors = (
            Weight(name, dtype, tensor.shape, np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
            for name, tensor in weights.items()
        )
        yield {"type": "LookupEncoder", "config": {key: config[key] for key in CONFIG_KEYS}}, tensors
        for part in chain[1:]:
            given = _json(part.path / "config.json")
            source = given.get("module_input_name", "sentence_embedding")
            names = {
                "module_input_name": source,
                "module_output_name": given.get("module_output_name") or source,
            }
            yield {"type": "Normalize", "config": names}, iter(())

    return fingerprint(described())


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path) if path.is_file() else {}
    except ValueError as error:
        raise EncoderError(f"{path} cannot be read ({error}); copy the encoder again.") from error
    return content if isinstance(content, dict) else {}
