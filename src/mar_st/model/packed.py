"""Model folders with weights in 8 bits, for shipping: a quarter of float32, half of float16.

A packed folder is a model folder whose matrices are stored as int8 with one float16 scale per row (the
largest absolute value of the row is 127), and everything else unchanged. Nothing computes in 8 bits: `unpack`
restores the folder in float16, which every loader reads. Matrices that several encoders of a folder share are
stored once.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from mar_st.errors import MarError
from mar_st.files import DIGESTS, finished_folder, listed_path, read_record, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: Lists the weight files of a packed folder and the parts of their tensors.
MANIFEST = "packed.json"

#: Holds the tensors of all files.
TENSORS_FILE = "packed.safetensors"


def pack(model: str | Path, out: str | Path) -> None:
    """Write a packed copy of a model folder.

    Args:
        model: A folder with weights as safetensors: of sentence-transformers, of transformers, a saved MAR.
        out: Folder to write; must not exist.

    Raises:
        MarError: The folder holds no safetensors, or `out` exists.
    """
    from safetensors.torch import save_file  # lazy: torch

    source, target = Path(model), Path(out)
    weights = sorted(source.rglob("*.safetensors"))
    if target.exists() or not weights:
        raise MarError(
            f"{target} exists; give another folder or delete it."
            if target.exists()
            else f"{source} is not a model folder: it holds no .safetensors file."
        )
    stored: dict[str, torch.Tensor] = {}
    listing = {
        path.relative_to(source).as_posix(): {name: _store(t, stored) for name, t in _tensors(path)}
        for path in weights
    }
    with finished_folder(target) as part:
        ignored = shutil.ignore_patterns("*.safetensors", DIGESTS)
        shutil.copytree(source, part, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
        save_file(stored, str(part / TENSORS_FILE))
        (part / TENSORS_FILE).chmod(0o644)  # safetensors lets only the owner read
        write_json(part / MANIFEST, {"digest": _digest(part), "weights": listing}, indent=None)


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
    if _digest(source) != manifest["digest"]:
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


def count_packed(packed: str | Path) -> int:
    """Return the number of parameters of the model that was packed, from the header of its tensors.

    Raises:
        MarError: The folder is not packed.
    """
    weights = _manifest(Path(packed))["weights"]
    with safe_open(str(Path(packed) / TENSORS_FILE), framework="pt") as stored:
        shapes = [
            stored.get_slice(parts[0]).get_shape()
            for tensors in weights.values()
            for parts in tensors.values()
        ]
    return sum(math.prod(shape) for shape in shapes)


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(str(path), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 -- the file is not a mapping
            yield name, file.get_tensor(name)


def _store(tensor: torch.Tensor, stored: dict[str, torch.Tensor]) -> list[str]:
    """Add a tensor to the store unless an equal one is there; returns the names of its parts."""
    import torch  # lazy: torch

    if tensor.ndim < 2 or not tensor.is_floating_point():
        kept = tensor.half() if tensor.is_floating_point() else tensor
        return [_add(kept if torch.isfinite(kept).all() else tensor, stored)]
    rows = tensor.float()
    scale = (rows.abs().amax(dim=-1, keepdim=True) / 127).half()
    if not torch.isfinite(scale * 2).all():
        return [_add(tensor, stored)]
    codes, scale = _quantised(rows, scale)
    return [_add(codes.to(torch.int8), stored), _add(scale, stored)]


def _quantised(rows: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of the least squared error, among each row's scale and its two neighbours.

    So a row that was packed before gets its codes and scale back, although its largest value was rounded to
    float16 in between.

    Args:
        rows: Matrix, float32.
        scale: Largest absolute value of each row divided by 127, float16.
    """
    import torch  # lazy: torch

    bits = scale.view(torch.int16)
    best: Any = None
    for step in (0, 1, -1):
        scales = torch.where(scale > 0, bits + step, bits).view(torch.float16)
        codes = torch.where(scales > 0, rows / scales.float(), torch.zeros(())).round().clamp(-127, 127)
        error = (codes * scales.float() - rows).square().sum(dim=-1, keepdim=True)
        if best is None:
            best = error, codes, scales
        else:
            less = error < best[0]
            best = tuple(torch.where(less, *pair) for pair in zip((error, codes, scales), best, strict=True))
    return best[1], best[2]


def _add(tensor: torch.Tensor, stored: dict[str, torch.Tensor]) -> str:
    import torch  # lazy: torch

    content = tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor
    shape = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    name = hashlib.sha256(shape + content.numpy().tobytes()).hexdigest()[:24]
    stored.setdefault(name, tensor.contiguous().clone())
    return name


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


def _digest(folder: Path) -> str:
    """Return the SHA-256 of all files of a packed folder except its manifest."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
