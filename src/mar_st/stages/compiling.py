"""`torch.compile` for the encoders of a stage.

Eager PyTorch spends most of a small encoder's step outside matrix products: in norms, rotary embeddings,
activations and casts, each a pass over memory, and, on a CPU, in the backward pass of fused attention. The
compiler fuses them.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Transformer
from transformers.utils import logging

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentence_transformers import SentenceTransformer

__all__ = ["compiled", "compiled_encoders", "has_compiler", "transformers_of"]

logger = logging.get_logger(__name__)

#: Variants of compiled code that the encoders of a stage may need together: with and without gradients, for
#: small and large batches, for each encoder. PyTorch stops compiling at 8, and the rest would run uncompiled.
MAX_VARIANTS = 64


def has_compiler(*, on_cpu: bool) -> bool:
    """Return True if the compiler that `torch.compile` needs is installed.

    On a CPU inductor compiles C++ (`$CXX`, or else `g++`). On a GPU Triton compiles its launchers (`$CC`, or
    else `gcc` or `clang`), and Triton itself must be installed. If a variable is set, only its compiler
    counts, as for inductor and Triton.

    Args:
        on_cpu: Whether code is compiled for a CPU.
    """
    if on_cpu:
        names = [os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")]
    elif find_spec("triton") is None:
        return False
    else:
        chosen = os.environ.get("CC")
        names = [chosen] if chosen else ["gcc", "clang"]
    return any(shutil.which(name.split()[0]) for name in names if name.strip())


@contextmanager
def compiled(model: SentenceTransformer, *, enabled: bool) -> Iterator[None]:
    """Compile every transformer of a model for as long as the context lasts, see `compiled_encoders`.

    Args:
        model: The model, on its device.
        enabled: False: do nothing.
    """
    models = transformers_of(model) if enabled else []
    with compiled_encoders(models, on_cpu=model.device.type == "cpu"):
        yield


def transformers_of(model: SentenceTransformer) -> list[Any]:
    """Return every transformers model in a sentence-transformers model once."""
    models = [module.model for module in model.modules() if isinstance(module, Transformer)]
    return list(dict.fromkeys(models))


@contextmanager
def compiled_encoders(encoders: list[Any], *, on_cpu: bool) -> Iterator[None]:
    """Compile the forward methods of transformers for as long as the context lasts.

    Names of parameters and saved files do not change. On a CPU attention is computed without the fused
    kernel meanwhile, because the compiler's code is faster in the backward pass.

    Args:
        encoders: transformers models. Without a compiler they stay unchanged and a warning is given: results
            are the same up to rounding, but training is slower.
        on_cpu: Whether they are on a CPU.
    """
    if encoders and not has_compiler(on_cpu=on_cpu):
        needs = "a C++ compiler (g++ or $CXX)" if on_cpu else "Triton and a C compiler (gcc, clang or $CC)"
        logger.warning(f"compile: true needs {needs}, and there is none here: training is slower without.")
        encoders = []
    before = [encoder.config._attn_implementation for encoder in encoders]
    for encoder in encoders:
        if on_cpu:
            encoder.set_attn_implementation("eager")
        # Not Module.compile(): it does not compile the method `forward`, which sentence-transformers calls.
        encoder.forward = torch.compile(encoder.forward, dynamic=True)
    try:
        with _room_for_variants() if encoders else nullcontext():
            yield
    finally:
        for encoder, attention in zip(encoders, before, strict=True):
            del encoder.forward
            if on_cpu:
                encoder.set_attn_implementation(attention)


@contextmanager
def _room_for_variants() -> Iterator[None]:
    from torch._dynamo import config  # lazy: torch._dynamo

    with config.patch(recompile_limit=max(config.recompile_limit, MAX_VARIANTS)):
        yield
