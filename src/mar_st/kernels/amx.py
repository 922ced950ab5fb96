"""Linear layers on the matrix unit (AMX) of x86 processors: 16 bits of mantissa, up to three times as fast.

The method is in `amx.cpp`. The source is compiled when a user first needs it, which takes a second and a C++
compiler; if there is none, or the processor lacks the unit, torch's own float32 is used.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mar_st.kernels.build import CompileError
from mar_st.kernels.build import library as compiled
from mar_st.kernels.processor import processor

logger = logging.getLogger(__name__)

#: Processor features that the kernel requires, as Linux names them.
_REQUIRED_FLAGS = {"amx_tile", "amx_bf16", "avx512f", "avx512bw", "avx512dq", "avx512_bf16"}
_COMPILER_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512bf16", "-mamx-tile", "-mamx-bf16")

#: Sizes of a layer must be multiples of this.
_SIZE_MULTIPLE = 32

_scratch = threading.local()


@lru_cache(maxsize=1)
def kernel() -> Any | None:
    """Return the compiled kernel; `None` if it is not available or gives wrong results."""
    if not processor().flags >= _REQUIRED_FLAGS:
        return None
    try:
        library = compiled(Path(__file__).with_name("amx.cpp"), _COMPILER_FLAGS)
    except CompileError as error:
        logger.info("This processor has AMX, but its kernel could not be built (%s); torch computes.", error)
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_int
    library.mar_amx_pack.argtypes = [pointer, size, size, pointer]
    library.mar_amx_linear.argtypes = [pointer, size, size, size, pointer, pointer, pointer, pointer]
    library.mar_amx_pack.restype = library.mar_amx_linear.restype = None
    if library.mar_amx_begin() != 0 or not _computes(library):
        return None
    return library


def _computes(library: Any) -> bool:
    """Return True if the kernel's product of two test matrices agrees with torch's."""
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(37, 64, generator=generator), torch.randn(96, 64, generator=generator)
    product = PackedLinear(w, None, library)(x)
    return bool((product - x @ w.T).abs().max() < 1e-3)


class PackedLinear(nn.Module):
    """A linear layer whose weights are held as the kernel reads them; for inference only.

    Args:
        weight: `(out, in)` float32, both multiples of 32.
        bias: `(out,)` float32 or `None`.
        library: Result of `kernel()`.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, library: Any) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.library = library
        weight = weight.detach().contiguous()
        self.packed = torch.empty(2 * weight.numel(), dtype=torch.int16)
        library.mar_amx_pack(weight.data_ptr(), self.out_features, self.in_features, self.packed.data_ptr())
        self.bias = None if bias is None else bias.detach().contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`(..., in)` float32 to `(..., out)`."""
        flat = x.reshape(-1, self.in_features).contiguous()
        output, scratch = torch.empty(len(flat), self.out_features), _scratch_address(self.library)
        self.library.mar_amx_linear(  # releases the interpreter's lock
            flat.data_ptr(), len(flat), self.in_features, self.out_features, self.packed.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(), output.data_ptr(), scratch,
        )  # fmt: skip
        return output.reshape(*x.shape[:-1], self.out_features)


def _scratch_address(library: Any) -> int:
    """Return the address of this thread's scratch memory, aligned to a cache line; created at first use."""
    if not hasattr(_scratch, "memory"):
        _scratch.memory = torch.empty(library.mar_amx_room() + 32, dtype=torch.int16)
    start: int = _scratch.memory.data_ptr()
    return start + -start % 64


def fits(layer: nn.Linear) -> bool:
    """Return True if the kernel supports a layer of this size."""
    return not (layer.in_features % _SIZE_MULTIPLE or layer.out_features % _SIZE_MULTIPLE)
