"""Digest of the document space of a model folder, computed from its files without loading weights.

Vectors of documents and vectors of queries may be compared if they come from one space. The digest covers
everything that determines document vectors: the modules of the document route (all modules of a model without
routes), their settings, and their weight files by name, size, safetensors header and evenly spaced samples of
the content. Query encoders do not count, so all encoders of a family share a space. A model that was trained
for the space of another (`mar align`) names that space in `space.txt`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.model.routes import DOCUMENT_PROMPTS
from mar_st.modules.layout import ROUTER_FILE, listed_modules, read_router

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names the space of a query encoder without documents, or of one trained for an existing space.
SPACE_FILE = "space.txt"
EXPORT_FILE = "export.json"

#: Number and size of the pieces that are read of every weight file. Training changes all of a matrix, so any
#: piece distinguishes two trainings; headers alone do not.
SAMPLES, SAMPLE_BYTES = 256, 4096

#: Settings of a configuration that say where a model comes from or how it is computed.
_IRRELEVANT_SETTINGS = (
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
    "use_cache",
)

WEIGHTS_SUFFIXES = (".safetensors", ".bin")


def space_of(folder: str | Path) -> str | None:
    """Return the digest of the document space of a model folder.

    Args:
        folder: A saved MAR, another sentence-transformers folder, a transformers folder, a query encoder
            alone (read from its `space.txt` or `export.json`), or a vector folder (from its manifest).

    Returns:
        64 hexadecimal digits, or `None` if the document side is absent and no file names the space.

    Raises:
        MarError: No such folder, or no model in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise MarError(f"There is no model folder {root}.")
    parts = document_parts(root)
    if parts is None or (root / SPACE_FILE).is_file():
        return _written(root)
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, {"module": part["type"]})
        for path in sorted(_files(part["path"], whole=part["whole"])):
            name = path.relative_to(part["path"]).as_posix()
            if path.suffix in WEIGHTS_SUFFIXES:
                _add(digest, {"name": name, "size": path.stat().st_size, "content": _weights_digest(path)})
            elif name in ("config.json", "adapter_config.json", "sentence_bert_config.json"):
                _add(digest, {"name": name, "content": _settings(path)})
    settings = _json(root / "config_sentence_transformers.json")
    _add(digest, {"prompt": document_prompt(settings.get("prompts") or {})})
    return digest.hexdigest()


def document_parts(root: Path) -> list[dict[str, Any]] | None:
    """Return the modules that encode documents: `type`, `path`, and `whole` if all files below belong to it.

    Returns:
        The modules; `None` if the folder's document side is absent.

    Raises:
        MarError: The folder holds no model.
    """
    if not (root / "modules.json").is_file():
        if (root / "config.json").is_file() and any(_files(root, whole=False)):
            return [{"type": "Transformer", "path": root, "whole": False}]
        if _written(root) is not None:
            return None
        raise MarError(f"{root} holds no model: it has neither modules.json nor config.json.")
    parts: list[dict[str, Any]] = []
    for entry in listed_modules(root):
        path, kind = entry.path, _class_name(entry.type)
        if kind != "Router":
            parts.append({"type": kind, "path": path, "whole": path != root})
            continue
        listing = read_router(path) if (path / ROUTER_FILE).is_file() else {}
        chain = listing.get("structure", {}).get("document")
        if chain is None or not all((path / key).is_dir() for key in chain):
            return None
        parts += [
            {"type": _class_name(listing["types"][key]), "path": path / key, "whole": True} for key in chain
        ]
    return parts


def document_prompt(prompts: dict[str, str]) -> str:
    """Return the stored prompt of documents, as sentence-transformers finds it; else empty."""
    return next((prompts[name] for name in DOCUMENT_PROMPTS if name in prompts), "") or ""


def _written(root: Path) -> str | None:
    if (root / SPACE_FILE).is_file():
        return (root / SPACE_FILE).read_text(encoding="utf-8").strip() or None
    for name in (EXPORT_FILE, "manifest.json"):
        space = _json(root / name).get("space")
        if space:
            return str(space)
    return None


def _class_name(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _files(path: Path, *, whole: bool) -> Iterable[Path]:
    """Return the files of a module; only those at the top if it shares its folder with other modules."""
    return (file for file in (path.rglob("*") if whole else path.glob("*")) if file.is_file())


def _settings(path: Path) -> dict[str, Any]:
    return {name: value for name, value in _json(path).items() if name not in _IRRELEVANT_SETTINGS}


def _weights_digest(path: Path) -> str:
    """Return the digest of a weight file's header and of samples of its content, including its end."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        if path.suffix == ".safetensors":
            length = int.from_bytes(stream.read(8), "little")
            digest.update(stream.read(min(length, size)))
        start = stream.tell()
        step = max(SAMPLE_BYTES, (size - start) // SAMPLES)
        for offset in [*range(start, size, step), max(start, size - SAMPLE_BYTES)]:
            stream.seek(offset)
            digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _add(digest: Any, content: dict[str, Any]) -> None:
    digest.update(json.dumps(content, sort_keys=True, ensure_ascii=False).encode() + b"\n")
