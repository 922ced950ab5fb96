"""Model folders with weights in 8 bits, for shipping: a quarter of float32, half of float16.

A packed folder is a model folder whose matrices are stored as int8 with one float16 scale per row (the
largest absolute value of the row is 127), and everything else unchanged. Nothing computes in 8 bits: `unpack`
restores the folder in float16, which every loader reads. Matrices that several encoders of a folder share are
stored once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from mar_st.errors import MarError
from mar_st.files import DIGESTS, listed_path, move_folder, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: Lists the files of a packed folder and the position of the tensors of each.
MANIFEST = "packed.json"

#: Holds the tensors of all files.
TENSORS_FILE = "packed.safetensors"

_FORMAT = 1
_CACHE_VARIABLE = "MAR_CACHE"


class PackedError(MarError):
    """A folder that cannot be packed or unpacked; the message says why."""


def pack(model: str | Path, out: str | Path) -> None:
    """Write a packed copy of a model folder.

    Args:
        model: A folder with weights as safetensors: of sentence-transformers, of transformers, a saved MAR.
        out: Folder to write; must not exist. It is moved into place when it is complete.

    Raises:
        PackedError: The folder does not exist, it holds no safetensors, or `out` exists.
    """
    from safetensors.torch import save_file  # lazy: safetensors.torch

    source, target = Path(model), Path(out)
    if target.exists():
        raise PackedError(f"{target} exists; give another folder or delete it.")
    files = sorted(path for path in source.rglob("*") if path.is_file())
    weights = [path for path in files if path.suffix == ".safetensors"]
    if not weights:
        raise PackedError(f"{source} is not a model folder: it holds no .safetensors file.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        part = Path(folder) / "packed"
        part.mkdir()
        stored: dict[str, torch.Tensor] = {}
        listing: dict[str, Any] = {}
        for path in weights:
            listing[path.relative_to(source).as_posix()] = {
                name: _store(tensor, stored) for name, tensor in _tensors(path)
            }
        for path in files:
            if path not in weights and path.relative_to(source).as_posix() != DIGESTS:
                copy = part / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        save_file(stored, str(part / TENSORS_FILE))
        (part / TENSORS_FILE).chmod(0o644)  # safetensors lets only the owner read
        content = {"format": _FORMAT, "digest": _digest(part), "weights": listing}
        (part / MANIFEST).write_text(json.dumps(content), encoding="utf-8")
        move_folder(part, target)


def unpack(packed: str | Path, out: str | Path) -> None:
    """Write the model folder that was packed; its matrices are float16.

    Args:
        packed: A packed folder.
        out: Folder to write; it is moved into place when it is complete. An existing one is kept unchanged.

    Raises:
        PackedError: The folder is not packed, is damaged, or has a later format.
    """
    source, target = Path(packed), Path(out)
    if target.is_dir():
        return
    from safetensors.torch import save_file  # lazy: safetensors.torch

    verify(source)
    weights = _manifest(source)["weights"]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        part = Path(folder) / "model"
        shutil.copytree(
            source, part, ignore=shutil.ignore_patterns(MANIFEST, TENSORS_FILE), copy_function=shutil.copyfile
        )
        try:
            with safe_open(str(source / TENSORS_FILE), framework="pt") as stored:
                for name, tensors in weights.items():
                    path = listed_path(part, name, source / MANIFEST, PackedError)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    unpacked = {key: _load(stored, place) for key, place in tensors.items()}
                    save_file(unpacked, str(path), metadata={"format": "pt"})
        except (SafetensorError, OSError, KeyError) as error:
            raise PackedError(
                f"{source} is damaged ({type(error).__name__}: {error}). Install it again."
            ) from error
        try:
            move_folder(part, target)
        except OSError:  # another process was first
            if not target.is_dir():
                raise


def verify(packed: str | Path) -> None:
    """Compare all bytes of a packed folder with its digest.

    Raises:
        PackedError: The bytes differ, or the folder is not packed.
    """
    source = Path(packed)
    if _digest(source) != _manifest(source)["digest"]:
        raise PackedError(f"{source} is damaged: it holds other bytes than were packed. Install it again.")


def unpacked_folder(packed: str | Path, name: str) -> Path:
    """Return the unpacked form of a packed folder in the cache of this user; writes it on first use.

    The cache is `$MAR_CACHE`, else `mar_st` in `$XDG_CACHE_HOME` or `~/.cache`. Each content has its own
    folder.

    Args:
        packed: A packed folder.
        name: Prefix of the digest in the folder's name.

    Raises:
        PackedError: See `unpack`.
    """
    digest = str(_manifest(Path(packed))["digest"])
    if not digest.isalnum():
        raise PackedError(f"{packed} is damaged: its digest is {digest!r}. Install it again.")
    cache = os.environ.get(_CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(cache).expanduser() if cache else Path(base) / "mar_st"
    folder = root / f"{name}-{digest[:16]}"
    unpack(packed, folder)
    return folder


def count_packed(packed: str | Path) -> int:
    """Return the number of parameters of the model that was packed, from the header of its tensors.

    Raises:
        PackedError: The folder is not packed, or is damaged.
    """
    weights = _manifest(Path(packed))["weights"]
    try:
        with safe_open(str(Path(packed) / TENSORS_FILE), framework="pt") as stored:
            shapes = [
                stored.get_slice(parts[0]).get_shape()
                for tensors in weights.values()
                for parts in tensors.values()
            ]
    except (SafetensorError, OSError) as error:
        raise PackedError(
            f"{packed} is damaged ({type(error).__name__}: {error}). Install it again."
        ) from error
    return sum(math.prod(shape) for shape in shapes)


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 -- the file is not a mapping
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise PackedError(f"{path} is not a readable safetensors file ({error}).") from error


def _store(tensor: torch.Tensor, stored: dict[str, torch.Tensor]) -> list[str]:
    """Add a tensor to the store unless an equal one is there; returns the names of its parts."""
    import torch  # lazy: torch

    if tensor.ndim < 2 or not tensor.is_floating_point():
        kept = tensor.half() if tensor.is_floating_point() else tensor
        if not torch.isfinite(kept).all():
            kept = tensor  # beyond the range of float16
        return [_add(kept, stored)]
    rows = tensor.float()
    scale = (rows.abs().amax(dim=-1, keepdim=True) / 127).half()
    if not torch.isfinite(scale * 2).all():
        return [_add(tensor, stored)]
    codes, scale = _quantised(rows, scale)
    return [_add(codes.to(torch.int8), stored), _add(scale, stored)]


def _quantised(rows: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of the least squared error, among each row's scale and its two neighbours.

    So a row that was packed before gets its codes and scale back, although its largest value was rounded to
    float16 in between: packing an unpacked folder gives the same bytes, unless values are so small (below
    .01) that scales are subnormal.

    Args:
        rows: Matrix, float32.
        scale: Largest absolute value of each row divided by 127, float16.
    """
    import torch  # lazy: torch

    bits = scale.view(torch.int16)
    candidates = []
    for step in (0, 1, -1):
        scales = torch.where(scale > 0, bits + step, bits).view(torch.float16)
        codes = torch.where(scales > 0, rows / scales.float(), torch.zeros(())).round().clamp(-127, 127)
        error = (codes * scales.float() - rows).square().sum(dim=-1, keepdim=True)
        candidates.append((error, codes, scales))
    least_error, best_codes, best_scales = candidates[0]
    for error, codes, scales in candidates[1:]:
        less = error < least_error
        least_error, best_codes, best_scales = (
            torch.where(less, new, old)
            for new, old in ((error, least_error), (codes, best_codes), (scales, best_scales))
        )
    return best_codes, best_scales


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
    scale: torch.Tensor = stored.get_tensor(parts[1])
    return (tensor.float() * scale.float()).half()


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        content = read_json(folder / MANIFEST)
    except (OSError, ValueError) as error:
        raise PackedError(f"{folder} is not a packed model: no readable {MANIFEST} ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise PackedError(f"{folder} was packed by a later version; update medteb.")
    try:
        parts = [part for tensors in content["weights"].values() for part in tensors.values()]
        whole = isinstance(content["digest"], str) and all(len(part) in (1, 2) for part in parts)
    except (KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise PackedError(f"{folder / MANIFEST} is damaged. Install it again.")
    return content


def _digest(folder: Path) -> str:
    """Return the SHA-256 of all files of a packed folder except its manifest."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
