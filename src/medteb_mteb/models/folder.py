"""Description of a saved model folder without loading it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from typing import TYPE_CHECKING, Any

from medteb_mteb.folders.layout import card_header
from medteb_mteb.folders.problems import FolderError

if TYPE_CHECKING:
    from pathlib import Path

# A file of many gigabytes is sampled: pieces spread over all of it, since two models trained from one
# backbone may share whole regions (frozen embeddings come first, the last norm last).
_MAX_WHOLE_BYTES = 16 << 20
_PIECES = 256
_PIECE_BYTES = 64 << 10
_LENGTH_KEYS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
)
_LANGUAGES = {"zh": "zho-Hans", "en": "eng-Latn"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_LIMIT = 10**9  # transformers writes a huge number for a tokenizer without a limit
_EMBEDDING_WEIGHTS = (
    "word_embeddings.weight", "embed_tokens.weight", "tok_embeddings.weight",
    "bigrams.safetensors/first", "bigrams.safetensors/second",
)  # fmt: skip


def folder_revision(folder: Path) -> str:
    """Return the sha256 (first 40 hex digits) of a model folder's files, so that results follow the weights.

    For files above 16 MiB, the size and 256 pieces of 64 KiB, evenly spread over the file, are hashed.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in relative.parts):
            continue
        if path.suffix == ".md":
            continue  # the card may be corrected
        size = path.stat().st_size
        digest.update(f"{relative.as_posix()}\0{size}\0".encode())
        with path.open("rb") as stream:
            if size <= _MAX_WHOLE_BYTES:
                digest.update(stream.read())
            else:
                for index in range(_PIECES):
                    stream.seek(index * (size - _PIECE_BYTES) // (_PIECES - 1))
                    digest.update(stream.read(_PIECE_BYTES))
    return digest.hexdigest()[:40]


def widths(full: int) -> list[int]:
    """Return widths for truncating vectors of ``full`` dimensions: 2^k and 3 x 2^k from 8, and ``full``.

    mteb refuses to load a model with an ``embed_dim`` that its metadata does not list.
    """
    steps = {factor << k for factor in (1, 3) for k in range(full.bit_length())}
    return sorted({full, *(step for step in steps if 8 <= step < full)})


def float32_mebibytes(parameters: int) -> int:
    """Return the memory of this number of float32 parameters in MiB."""
    return round(parameters * 4 / 2**20)


def describe_folder(folder: Path) -> dict[str, Any]:
    """Describe a saved model without loading it: counts come from the headers of its weight files.

    Returns:
        ``revision``, ``n_parameters``, ``n_embedding_parameters``, ``embed_dim``, ``max_tokens`` and
        ``similarity_fn_name``, and from the card's header ``license``, ``languages``, ``release_date`` and
        ``public_training_code``, in the types of `ModelMeta`; None for what the folder does not say.
    """
    shapes = _shapes(folder)
    embeddings = [shape for name, shape in shapes.items() if name.endswith(_EMBEDDING_WEIGHTS)]
    settings = read_object(folder / "config_sentence_transformers.json")
    similarity = settings.get("similarity_fn_name")
    query = _route_folder(folder, "query")
    stated = [read_object(path).get(key) for name, key in _LENGTH_KEYS for path in sorted(folder.rglob(name))]
    lengths = [length for length in stated if isinstance(length, int | float) and 0 < length < _NO_LIMIT]
    width = read_object(query / "config.json").get("hidden_size") if query else None
    return {
        "revision": folder_revision(folder),
        "n_parameters": sum(map(math.prod, shapes.values())) or None,
        "n_embedding_parameters": sum(map(math.prod, embeddings)) or None,
        "embed_dim": width if isinstance(width, int) else None,
        "max_tokens": min(lengths, default=None),
        "similarity_fn_name": similarity if similarity in ("cosine", "dot") else None,
        **_described(folder),
    }


def _described(folder: Path) -> dict[str, Any]:
    """Return the header of the card; empty if it cannot be read."""
    from medteb_mteb.tasks._edition_task import licence_for_mteb  # lazy: mteb

    try:
        header = card_header(folder)
    except FolderError:
        header = {}
    stated = header.get("language")
    languages = stated if isinstance(stated, list) else [stated]
    known = [_LANGUAGES.get(str(code)) for code in languages]
    released = str(header.get("release_date"))
    return {
        "license": licence_for_mteb(str(header["license"])) if header.get("license") else None,
        "languages": [code for code in known if code is not None] or None,
        "release_date": released if _DAY.fullmatch(released) else None,
        "public_training_code": str(header["training_code"]) if header.get("training_code") else None,
    }


def _shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shapes of all weights by file and name; empty if a file is broken (loading reports it)."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with path.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(min(length, path.stat().st_size)))
            for name, entry in header.items():
                if name != "__metadata__":
                    shapes[f"{path.relative_to(folder)}/{name}"] = [int(size) for size in entry["shape"]]
        except (OSError, ValueError, struct.error, AttributeError, KeyError, TypeError):
            return {}
    return shapes


def _route_folder(folder: Path, route: str) -> Path | None:
    # A MAR has a second router, after the encoders, in a separate folder.
    for path in sorted(folder.rglob("router_config.json"), key=lambda path: (len(path.parts), path)):
        structure = read_object(path).get("structure")
        first = structure.get(route) if isinstance(structure, dict) else None
        if isinstance(first, list) and first:
            return path.parent / str(first[0])
    return None


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; an empty one if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
