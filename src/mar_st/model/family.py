"""Families: several query encoders that share one document space, in one folder.

The folder is that of a MAR with further routes beside `query`: `query-small`, `query-large`, ... The query
encoder is chosen when the model is loaded (`MAR.from_pretrained(folder, query="query-small")`); document
vectors, and so an index, do not change. `SentenceTransformer(folder)` loads it like any other and uses
`query`. Query encoders of this package's own modules (`mar_st.lookup`) are listed separately in the folder's
configuration: plain sentence-transformers does not see them, `MAR` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.files import finished_folder, read_record
from mar_st.model.mar import open_model
from mar_st.modules.arrangement import route, width
from mar_st.modules.layout import (
    ROUTER_FILE,
    is_query_route,
    query_routes,
    read_router,
    routers,
    saved_chain,
    write_router,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers.base.modules.module import Module


def query_encoders(folder: str | Path) -> list[str]:
    """Return the names of the query encoders of a saved MAR, in order.

    Raises:
        MarError: The folder is not a saved MAR.
    """
    _structure(Path(folder))
    return query_routes(Path(folder))


def add_query_encoder(
    folder: str | Path, encoder: Sequence[Module] | str | Path, name: str = "query-small"
) -> None:
    """Add a query encoder to a saved MAR, in place; existing modules are not changed.

    The new modules are written aside and moved into the folder, the list of encoders last: a process that is
    killed leaves a folder that loads as before. Modules that follow the other encoders follow this one too.

    Args:
        folder: A saved MAR.
        encoder: Modules that end in vectors of the MAR's document space, or the folder of a model: one
            encoder (its modules), or a model with routes (its `query` route).
        name: `query-` and a word; or `query` if the folder has only a document route.

    Raises:
        MarError: The name is taken or invalid, the widths differ, or the encoder was trained with another
            query prompt. The prompt is not checked for modules given as a list.
    """
    root = Path(folder)
    listing = _structure(root)
    if not is_query_route(name):
        raise MarError(f"A query encoder is called query-NAME (letters, digits, - and _); got {name!r}.")
    if name in listing["structure"]:
        raise MarError(
            f"{root} already has a query encoder {name!r}; choose another name than "
            f"{', '.join(listing['structure'])}."
        )
    modules = list(encoder) if not isinstance(encoder, str | Path) else _modules(Path(encoder), root)
    modules = _fitted(modules, root, listing)
    module_types: dict[str, str] = {}
    for index, module in enumerate(modules):
        key = f"{name}_{index}_{type(module).__name__}"
        with finished_folder(root / key) as part:
            module.save(str(part))
        module_types[key] = f"{type(module).__module__}.{type(module).__name__}"
    for router in routers(root)[1:]:
        _add_tail(router, name)
    listing["types"] |= module_types
    listing["structure"][name] = list(module_types)
    write_router(root, listing)


def _add_tail(folder: Path, name: str) -> None:
    """Add a route for a query encoder to a router after the encoders: a normalisation, as for the others."""
    listing = read_router(folder)
    if name in listing["structure"]:  # left over from a killed call
        return
    key = f"{name}_0_Normalize"
    (folder / key).mkdir(exist_ok=True)
    module = Normalize()
    module.save(str(folder / key))
    listing["types"][key] = f"{type(module).__module__}.{type(module).__name__}"
    listing["structure"][name] = [key]
    write_router(folder, listing)


def _structure(root: Path) -> dict[str, Any]:
    if not (root / ROUTER_FILE).is_file():
        raise MarError(f"{root} has no {ROUTER_FILE}, so it is not a saved MAR.")
    return read_router(root)


def _prompt(root: Path) -> str:
    settings = read_record(root / "config_sentence_transformers.json") or {}
    return str((settings.get("prompts") or {}).get("query") or "")


def _modules(source: Path, root: Path) -> list[Any]:
    """Return the modules of a saved encoder, or of the query route of a saved model with routes."""
    model = open_model(source, routes="query", device="cpu", model_kwargs={"dtype": "auto"})
    theirs, ours = _prompt(source), _prompt(root)
    if theirs != ours:
        raise MarError(
            f"The encoder in {source} was trained with the query prompt {theirs!r}, but the queries of "
            f"{root} get {ours!r}. Align it with that prompt, or pass its modules if it should be used so."
        )
    return route(model, "query")


def _fitted(modules: list[Any], root: Path, listing: dict[str, Any]) -> list[Any]:
    """Return the modules with or without a final normalisation, as in the other routes of the folder."""
    core = modules[:-1] if isinstance(modules[-1], Normalize) else modules
    own, theirs = width(core), _saved_width(root, listing)
    if own != theirs:
        raise MarError(
            f"The encoder gives {own} dimensions, the document space of {root} has {theirs}. Give it a "
            f"linear layer of that width (projection={theirs}) and align it."
        )
    last = next(iter(listing["structure"].values()))[-1]
    return [*core, Normalize()] if listing["types"][last].endswith(".Normalize") else core


def _saved_width(root: Path, listing: dict[str, Any]) -> int:
    """Return the width of the space, from the settings of a saved route; no weights are loaded."""
    for part in reversed(saved_chain(root, next(iter(listing["structure"])))):
        config = read_record(part.path / "config.json") or {}
        for field in ("out_features", "embedding_dimension", "word_embedding_dimension", "hidden_size"):
            if field in config:
                return int(config[field])
    raise MarError(f"{root} does not say how wide its vectors are. Save the model again.")
