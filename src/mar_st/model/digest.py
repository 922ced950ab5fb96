"""The digest of a model: of its files, of one side of it, or of loaded modules.

It covers what determines vectors: the weights, by safetensors header and evenly spaced samples of the
content, and the settings without those that only say where a model comes from. Vectors of documents and of
queries may be compared if they come from one space, which is the digest of the document side; a model that
was trained for the space of another (`mar align`) names that space in `space.txt`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import read_record
from mar_st.model.names import model_folder
from mar_st.modules.layout import SavedModule, listed_modules, read_router, saved_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Names the space of a query encoder without documents, or of one trained for an existing space.
SPACE_FILE = "space.txt"

WEIGHTS_SUFFIXES = (".safetensors", ".bin")

#: Prompts for documents, in the order in which sentence-transformers looks for one.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")

#: Number and size of the pieces that are read of every weight file. Training changes all of a matrix, so any
#: piece distinguishes two trainings; headers alone do not.
_SAMPLES, _SAMPLE_BYTES = 256, 4096

_SETTINGS_FILES = ("config.json", "adapter_config.json", "sentence_bert_config.json", "tokenizer.json")

#: Settings that say where a model comes from or how it is computed, and what calls leave in a tokenizer.
_IRRELEVANT = {
    "_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache",
    "truncation", "padding",
}  # fmt: skip


def model_digest(source: str | Path, revision: str | None = None, *, route: str | None = None) -> str:
    """Return the digest of a model.

    Args:
        source: Folder, name or Hub name; of a Hub name, the digest is its commit, if that is in the cache.
        revision: Branch, tag or commit of a Hub name.
        route: Cover only the modules and prompts of this side; default everything but `.md` files.

    Raises:
        MarError: A name of this project has no model on this machine.
    """
    folder = model_folder(source)
    if folder is None:
        from huggingface_hub import try_to_load_from_cache  # lazy: huggingface_hub

        cached = try_to_load_from_cache(str(source), "config.json", revision=revision)
        commit = Path(cached).parent.name if isinstance(cached, str) else None
        return f"hub:{source}@{commit or revision or 'main'}"
    if route is not None:
        return _of_parts(folder, _parts(folder, route) or [], route)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            _add(digest, [path.relative_to(folder).as_posix(), _content(path)])
    return digest.hexdigest()


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
    return _of_parts(root, parts, "document")


def document_parts(root: Path) -> list[SavedModule] | None:
    """Return the modules that encode documents; `None` if the folder's document side is absent.

    Raises:
        MarError: The folder holds no model.
    """
    parts = _parts(root, "document")
    if parts is None and not (root / "modules.json").is_file() and _written(root) is None:
        raise MarError(f"{root} holds no model: it has neither modules.json nor config.json.")
    return parts


def modules_digest(modules: Sequence[Any]) -> str:
    """Return the digest of loaded modules: kinds, settings, tokenizers, and every weight in its dtype.

    It does not depend on the folder they came from, so two identical trainings give the same digest.
    """
    import torch  # lazy: torch

    digest = hashlib.sha256()
    for module in modules:
        model = getattr(module, "model", None)
        config = getattr(model, "config", None)
        settings = config.to_diff_dict() if config is not None else {}
        if config is None and hasattr(module, "get_config_dict"):
            settings = module.get_config_dict()
        backend = getattr(getattr(module, "tokenizer", None), "backend_tokenizer", None)
        tokenizer = {} if backend is None else json.loads(backend.to_str())
        _add(digest, [type(module).__name__, getattr(module, "max_seq_length", None)])
        _add(digest, [_relevant(settings), _relevant(tokenizer)])
        for name, tensor in sorted(module.state_dict().items()):
            _add(digest, [name, str(tensor.dtype), list(tensor.shape)])
            flat = tensor.detach().reshape(-1).contiguous().cpu().view(torch.uint8)
            digest.update(flat.numpy().data)
    return digest.hexdigest()


def _parts(root: Path, route: str) -> list[SavedModule] | None:
    if not (root / "modules.json").is_file():
        return [SavedModule("Transformer", root)] if (root / "config.json").is_file() else None
    for entry in listed_modules(root):
        if entry.type.endswith(".Router") and route not in read_router(entry.path)["structure"]:
            return None
    chain = saved_chain(root, route)
    # A normalisation has no files, and neither git nor the Hub keeps empty folders.
    there = all(part.path.is_dir() or part.type.endswith(".Normalize") for part in chain)
    return chain if there else None


def _of_parts(root: Path, parts: Iterable[SavedModule], route: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, part.type.rpartition(".")[2])
        # The folder of a model holds those of other modules.
        for path in sorted(part.path.glob("*") if part.path == root else part.path.rglob("*")):
            if path.suffix in WEIGHTS_SUFFIXES or path.name in _SETTINGS_FILES:
                _add(digest, [path.relative_to(part.path).as_posix(), _content(path)])
    prompts = ((read_record(root / "config_sentence_transformers.json") or {}).get("prompts") or {}).items()
    own = {key: text for key, text in prompts if (key in DOCUMENT_PROMPTS) == (route == "document") and text}
    of_documents = next((own[name] for name in DOCUMENT_PROMPTS if name in own), "")
    _add(digest, of_documents if route == "document" else own)
    return digest.hexdigest()


def _content(path: Path) -> Any:
    """Return what a digest covers of a file."""
    if path.suffix in WEIGHTS_SUFFIXES:
        return [path.stat().st_size, _sampled(path)]
    if path.name in _SETTINGS_FILES:
        return _relevant(read_record(path) or {})
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sampled(path: Path) -> str:
    """Return the digest of a weight file's header and of samples of its content, including its end."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        if path.suffix == ".safetensors":
            length = int.from_bytes(stream.read(8), "little")
            digest.update(stream.read(min(length, size)))
        start = stream.tell()
        step = max(_SAMPLE_BYTES, (size - start) // _SAMPLES)
        for offset in [*range(start, size, step), max(start, size - _SAMPLE_BYTES)]:
            stream.seek(offset)
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _written(root: Path) -> str | None:
    if (root / SPACE_FILE).is_file():
        return (root / SPACE_FILE).read_text(encoding="utf-8").strip() or None
    written = ((read_record(root / name) or {}).get("space") for name in ("export.json", "manifest.json"))
    return next((str(space) for space in written if space), None)


def _relevant(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _IRRELEVANT}


def _add(digest: Any, content: Any) -> None:
    digest.update(json.dumps(content, sort_keys=True, ensure_ascii=False, default=str).encode() + b"\n")
