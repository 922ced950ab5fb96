"""Model folders with weights in 8 bits, for shipping: a quarter of float32, half of float16.

A packed folder (`tools/pack.py` writes one) is a model folder whose matrices are stored as int8 with one
float16 scale per row (the largest absolute value of the row is 127), and everything else unchanged. Nothing
computes in 8 bits: `unpack` restores the folder in float16, which every loader reads. Matrices that several
encoders of a folder share are stored once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from mar_st.errors import MarError
from mar_st.files import finished_folder, listed_path, read_record

if TYPE_CHECKING:
    import torch

#: Lists the weight files of a packed folder and the parts of their tensors.
MANIFEST = "packed.json"

#: Holds the tensors of all files.
TENSORS_FILE = "packed.safetensors"


def unpack(packed: str | Path, out: str | Path) -> None:
    """Write the model folder that was packed; its matrices are float16. An existing `out` is kept unchanged.

    Raises:
        MarError: The folder is not packed, or its files are not those that were packed.
    """
    source, target = Path(packed), Path(out)
    if target.is_dir():
        return
    from safetensors.torch import save_file  # lazy: torch

    manifest = _manifest(source)
    if packed_digest(source) != manifest["digest"]:
        raise MarError(f"{source} is damaged: it holds other bytes than were packed. Install it again.")
    with finished_folder(target) as part, safe_open(str(source / TENSORS_FILE), framework="pt") as stored:
        ignored = shutil.ignore_patterns(MANIFEST, TENSORS_FILE)
        shutil.copytree(source, part, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
        for name, tensors in manifest["weights"].items():
            path = listed_path(part, name, source / MANIFEST)
            path.parent.mkdir(parents=True, exist_ok=True)
            unpacked = {key: _load(stored, parts) for key, parts in tensors.items()}
            save_file(unpacked, str(path), metadata={"format": "pt"})


def unpacked_folder(packed: str | Path, name: str) -> Path:
    """Return the unpacked form of a packed folder in the cache of this user; writes it on first use.

    The cache is `$MAR_CACHE`, else `mar_st` in `$XDG_CACHE_HOME` or `~/.cache`. Each content has its own
    folder.

    Args:
        packed: A packed folder.
        name: Prefix of the digest in the folder's name.

    Raises:
        MarError: See `unpack`.
    """
    digest = str(_manifest(Path(packed))["digest"])
    cache = os.environ.get("MAR_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(cache).expanduser() if cache else Path(base) / "mar_st"
    folder = root / f"{name}-{digest[:16]}"
    unpack(packed, folder)
    return folder


def _load(stored: Any, parts: list[str]) -> torch.Tensor:
    # A file may hold equal tensors, but safetensors refuses to save tensors that share memory.
    tensor: torch.Tensor = stored.get_tensor(parts[0]).clone()
    if len(parts) == 1:
        return tensor
    restored: torch.Tensor = (tensor.float() * stored.get_tensor(parts[1]).float()).half()
    return restored


def _manifest(folder: Path) -> dict[str, Any]:
    content = read_record(folder / MANIFEST) or {}
    if not str(content.get("digest", "")).isalnum() or not isinstance(content.get("weights"), dict):
        raise MarError(f"{folder} is not a packed model: no readable {MANIFEST}. Install it again.")
    return content


def packed_digest(folder: Path) -> str:
    """Return the SHA-256 of all files of a packed folder except its manifest."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
