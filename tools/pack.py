"""Pack a model folder for shipping, as `mar_st.model.packed` reads it: python -m tools.pack MODEL OUT."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mar_st.errors import MarError
from mar_st.files import finished_folder, write_json
from mar_st.model.packed import MANIFEST, TENSORS_FILE, packed_digest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pack(model: str | Path, out: str | Path) -> None:
    """Write a packed copy of a model folder.

    Args:
        model: A folder with weights as safetensors: of sentence-transformers, of transformers, a saved MAR.
        out: Folder to write; must not exist.

    Raises:
        MarError: The folder holds no safetensors, or `out` exists.
    """
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
        ignored = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(source, part, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
        save_file(stored, str(part / TENSORS_FILE))
        (part / TENSORS_FILE).chmod(0o644)  # safetensors lets only the owner read
        write_json(part / MANIFEST, {"digest": packed_digest(part), "weights": listing}, indent=None)


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(str(path), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 -- the file is not a mapping
            yield name, file.get_tensor(name)


def _store(tensor: torch.Tensor, stored: dict[str, torch.Tensor]) -> list[str]:
    """Add a tensor to the store unless an equal one is there; returns the names of its parts."""
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
    content = tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor
    shape = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    name = hashlib.sha256(shape + content.numpy().tobytes()).hexdigest()[:24]
    stored.setdefault(name, tensor.contiguous().clone())
    return name


if __name__ == "__main__":
    pack(*sys.argv[1:3])
