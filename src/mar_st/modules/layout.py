"""The modules and routes of a saved model, read from its files without loading weights."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.errors import MarError
from mar_st.files import JsonError, listed_path, read_json, read_record, write_text

if TYPE_CHECKING:
    from pathlib import Path

ROUTER_FILE = "router_config.json"

#: Where a router's configuration keeps the routes that need this package, hidden from plain
#: sentence-transformers, which would refuse the whole folder because of one class of another package.
FURTHER_KEY = "further"

#: Start of the class names of this package's own modules.
_OWN_PREFIX = "mar_st."

#: Names of query encoders: `query`, or `query-` and a word (a module's name may hold no dot).
_QUERY_ROUTE = re.compile(r"query(-[a-z0-9][a-z0-9_-]*)?")


#: Modules that may follow the transformer of an encoder.
FOLLOWING_MODULES = ("Pooling", "Dense", "Normalize")


class SavedModule(NamedTuple):
    """One module of a saved model: its class and its folder."""

    type: str
    path: Path


def module_path(root: Path, name: object, listing: str | Path) -> Path:
    """Return the folder of a module that a listing names; an empty name is the folder of the model itself.

    Raises:
        MarError: The name points outside the model's folder.
    """
    return root if name in ("", ".") else listed_path(root, name, listing)


def listed_modules(root: Path) -> list[SavedModule]:
    """Return the modules that `modules.json` of a saved model lists, in order.

    Raises:
        MarError: The file is damaged, or names a folder outside the model's folder.
    """
    path = root / "modules.json"
    try:
        entries = read_json(path)
        return [SavedModule(str(entry["type"]), module_path(root, entry["path"], path)) for entry in entries]
    except (OSError, KeyError, TypeError, JsonError) as error:
        raise _damaged(path, error) from error


def routers(root: Path) -> list[Path]:
    """Return the folders of a saved model's routers, in order."""
    entries = listed_modules(root) if (root / "modules.json").is_file() else []
    return [entry.path for entry in entries if entry.type.endswith(".Router")]


def read_router(folder: Path) -> dict[str, Any]:
    """Return the content of a router's configuration: `types`, `structure`, `parameters`, of all routes.

    Raises:
        MarError: The file is damaged, or names a folder outside the router's folder.
    """
    try:
        return with_further(read_json(folder / ROUTER_FILE), folder)
    except (OSError, JsonError) as error:
        raise _damaged(folder / ROUTER_FILE, error) from error


def with_further(listing: Any, folder: Path) -> dict[str, Any]:
    """Check a router's configuration; return it with the separately kept routes among the others.

    Raises:
        MarError: The configuration is damaged, or names a folder outside the router's folder.
    """
    try:
        merged = {name: value for name, value in listing.items() if name != FURTHER_KEY}
        for name, content in (listing.get(FURTHER_KEY) or {}).items():
            merged[name] = {**merged[name], **content}
        for key in {key for chain in merged["structure"].values() for key in chain} | set(merged["types"]):
            listed_path(folder, key, folder / ROUTER_FILE)
        for chain in merged["structure"].values():
            if not chain or not all(isinstance(merged["types"][key], str) for key in chain):
                raise TypeError("'structure' names lists of modules, and 'types' their classes")
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder / ROUTER_FILE, error) from error
    return merged


def write_router(folder: Path, listing: dict[str, Any]) -> None:
    """Write a router's configuration; `listing` is as `read_router` returns it.

    Further query encoders with modules of this package are kept separately. If `query` is one of them, all
    stay together: without it, plain sentence-transformers could encode no query.
    """
    types, structure = listing["types"], listing["structure"]
    own = {
        name: keys
        for name, keys in structure.items()
        if any(types[key].startswith(_OWN_PREFIX) for key in keys)
    }
    if own and "query" not in own and "document" not in own:
        common = {name: keys for name, keys in structure.items() if name not in own}
        used = {key for keys in common.values() for key in keys}
        further = {"types": {key: types[key] for keys in own.values() for key in keys}, "structure": own}
        listing = {
            **listing,
            "types": {key: kind for key, kind in types.items() if key in used or key not in further["types"]},
            "structure": common,
            FURTHER_KEY: further,
        }
    write_text(folder / ROUTER_FILE, json.dumps(listing, indent=4))


def is_query_route(name: str) -> bool:
    """Return True if a route of this name encodes queries: `query`, `query-small`, ..."""
    return _QUERY_ROUTE.fullmatch(name) is not None


def query_routes(root: Path) -> list[str]:
    """Return the names of the query encoders of a saved model, in order; none if it has no routers."""
    first_router = routers(root)[:1]
    return [
        name for folder in first_router for name in read_router(folder)["structure"] if is_query_route(name)
    ]


def saved_chain(root: Path, route: str) -> list[SavedModule]:
    """Return the modules that texts of a route go through, those after the routers included.

    A router that does not know the route takes its default one, or else that of queries.

    Raises:
        MarError: A listing is damaged, or a router has neither the route nor its substitute.
    """
    chain = []
    for entry in listed_modules(root):
        folder = entry.path
        if not entry.type.endswith(".Router"):
            chain.append(entry)
            continue
        listing = read_router(folder)
        structure = listing["structure"]
        parameters = listing.get("parameters")
        default = parameters.get("default_route") if isinstance(parameters, dict) else None
        name = route if route in structure else default or "query"
        if name not in structure:
            raise MarError(f"{folder / ROUTER_FILE} has no route {name!r}. Save or copy the model again.")
        chain += [SavedModule(listing["types"][key], folder / key) for key in structure[name]]
    return chain


def loading_call(name: str, root: Path) -> str:
    """Return the Python expression that loads a saved model with plain sentence-transformers.

    It needs `trust_remote_code=True` if the query encoder has modules of this package.

    Args:
        name: Name of the model in the expression.
        root: Its folder.
    """
    own = any(part.type.startswith(_OWN_PREFIX) for part in saved_chain(root, "query"))
    return f'SentenceTransformer("{name}"{", trust_remote_code=True" if own else ""})'


@dataclass(frozen=True)
class SavedModules:
    """The modules of a sentence-transformers model with one encoder.

    Attributes:
        transformer: Folder of the transformer.
        dense: Folder of the linear layer after pooling, if there is one.
        pooling: Saved settings of its pooling, `pooling_mode` and `include_prompt`; empty without one.
        prompts: Its non-empty prompts, by name.
    """

    transformer: Path
    dense: Path | None = None
    pooling: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)


def saved_modules(folder: Path) -> SavedModules | None:
    """Read what a model's folder says about its modules; no weights are touched.

    Returns:
        The modules, or `None` for a model that sentence-transformers did not save.

    Raises:
        MarError: A listing is damaged, or the model is not a transformer followed by at most a pooling, one
            linear layer and a normalisation.
    """
    if not (folder / "modules.json").is_file():
        return None
    modules = listed_modules(folder)
    kinds = [module.type.rpartition(".")[2] for module in modules]
    folders = {kind: module.path for kind, module in zip(kinds, modules, strict=True)}
    if kinds[:1] != ["Transformer"] or not {*kinds[1:]} <= {*FOLLOWING_MODULES} or len(folders) < len(kinds):
        raise MarError(
            f"{folder} is made of {', '.join(kinds)}; an encoder of a MAR is a Transformer that may be "
            f"followed by {', '.join(FOLLOWING_MODULES)}, each once. Load a model with routes by "
            "MAR.from_pretrained."
        )
    prompts = (read_record(folder / "config_sentence_transformers.json") or {}).get("prompts") or {}
    return SavedModules(
        transformer=folders["Transformer"],
        dense=folders.get("Dense"),
        pooling=_pooling(folders["Pooling"]) if "Pooling" in folders else {},
        prompts={key: text for key, text in prompts.items() if text},
    )


def _pooling(folder: Path) -> dict[str, Any]:
    """Return the settings of a pooling; the library also reads those that it wrote before version 6."""
    from sentence_transformers.sentence_transformer.modules import Pooling  # lazy: sentence_transformers

    try:
        pooling = Pooling.load(str(folder))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _damaged(folder / "config.json", error) from error
    return {"pooling_mode": pooling.pooling_mode, "include_prompt": pooling.include_prompt}


def transformer_folder(folder: Path) -> Path:
    """Return the folder of a model's transformer.

    Raises:
        MarError: See `saved_modules`.
    """
    saved = saved_modules(folder)
    return folder if saved is None else saved.transformer


def _damaged(path: Path, error: Exception) -> MarError:
    return MarError(f"{path} is damaged ({error!r}). Save or copy the model again.")
