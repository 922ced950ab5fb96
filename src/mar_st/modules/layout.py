"""The routes of a saved model with routers, read from its files without loading weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

ROUTER = "router_config.json"


class SavedModule(NamedTuple):
    """One module of a saved model: its class and its folder."""

    type: str
    path: Path


def routers(root: Path) -> list[Path]:
    """Return the folders of a saved model's routers, in order."""
    listing = root / "modules.json"
    entries = json.loads(listing.read_text(encoding="utf-8")) if listing.is_file() else []
    found = [root / entry["path"] for entry in entries if entry["type"].endswith(".Router")]
    return found or ([root] if (root / ROUTER).is_file() else [])


def read_router(folder: Path) -> dict[str, Any]:
    """Return the content of a router's configuration: `types`, `structure`, `parameters`."""
    content: dict[str, Any] = json.loads((folder / ROUTER).read_text(encoding="utf-8"))
    return content


def saved_chain(root: Path, route: str) -> list[SavedModule]:
    """Return the modules that texts of a route go through, those after the routers included.

    A router that does not know the route takes its default one, or else that of queries.
    """
    chain = []
    for entry in json.loads((root / "modules.json").read_text(encoding="utf-8")):
        folder = root / entry["path"]
        if not entry["type"].endswith(".Router"):
            chain.append(SavedModule(entry["type"], folder))
            continue
        listing = read_router(folder)
        structure = listing["structure"]
        name = route if route in structure else listing["parameters"].get("default_route") or "query"
        chain += [SavedModule(listing["types"][key], folder / key) for key in structure[name]]
    return chain
