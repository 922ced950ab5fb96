"""The heap keeps freed memory, and returns it to the system on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from mar_st.kernels import heap
from mar_st.kernels.linear import _replace

CHURN = """
import ctypes, resource, sys
from pathlib import Path
from mar_st.kernels import heap

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
SIZES = (6, 12, 24, 24, 24)
if sys.argv[1] == "keep":
    assert heap.keep()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

def layers(number):
    for _ in range(number):
        blocks = [libc.malloc(size * 2**20) for size in SIZES]
        for block, size in zip(blocks, SIZES):
            ctypes.memset(block, 1, size * 2**20)
        for block in blocks:
            libc.free(block)

layers(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
layers(20)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
kept = resident()
heap.trim()
print(faults * resource.getpagesize() / 2**20, kept - resident())
"""


def churned(how: str) -> tuple[float, float]:
    """MB of fresh pages in 20 layers of 90 MB, and MB that trimming gave back."""
    done = subprocess.run([sys.executable, "-c", CHURN, how], capture_output=True, text=True, check=True)
    fresh, given = map(float, done.stdout.split())
    return fresh, given


@pytest.mark.thorough
@pytest.mark.skipif(not heap.trim(), reason="no glibc")
def test_freed_memory_is_kept_until_it_is_released() -> None:
    fresh, given = churned("keep")
    assert fresh < 60
    assert given > 60
    assert churned("default")[0] > 200


def test_other_c_libraries_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_library", lambda: None)
    assert not heap.keep()
    assert not heap.trim()


def _of_files() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssFile:"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux gives pages back so")
def test_mapped_weights_leave_memory_once_a_kernel_has_copied_them(tmp_path: Path) -> None:
    with torch.no_grad():
        stored = {"weight": torch.randn(4096, 4096), "kept": torch.randn(4096, 256)}  # 64 and 4 MB
    save_file(stored, tmp_path / "weights.safetensors")
    os.sync()  # pages that are not written yet cannot leave
    with safe_open(tmp_path / "weights.safetensors", framework="pt") as file:
        mapped = {name: file.get_tensor(name) for name in stored}
    layer = nn.Linear(4096, 4096, bias=False)
    layer.weight = nn.Parameter(mapped["weight"], requires_grad=False)
    held = layer.weight  # as an encoder does whose other weights are in the same file
    assert torch.equal(held, stored["weight"])
    before = _of_files()

    assert _replace(nn.Sequential(layer), lambda linear: nn.Identity()) == 1

    assert _of_files() < before - 50
    assert torch.equal(held, stored["weight"])


def test_a_block_smaller_than_a_page_is_left_alone() -> None:
    assert not heap.page_out(4097, 100)
