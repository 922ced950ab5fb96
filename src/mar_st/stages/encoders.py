"""Changes to the encoders of a stage that last as long as it trains: compilation, checkpointing, weights."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Transformer
from transformers.utils import logging

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentence_transformers import SentenceTransformer
    from torch import nn

logger = logging.get_logger(__name__)

#: Variants of compiled code that the encoders of a stage may need together: with and without gradients, for
#: small and large batches, for each encoder. PyTorch stops compiling at 8, and the rest would run uncompiled.
MAX_VARIANTS = 64


def transformers_of(model: SentenceTransformer) -> list[Any]:
    """Return every transformers model in a sentence-transformers model once."""
    models = [module.model for module in model.modules() if isinstance(module, Transformer)]
    return list(dict.fromkeys(models))


@contextmanager
def compiled(encoders: list[Any], *, on_cpu: bool) -> Iterator[None]:
    """Compile the forward methods of transformers models for as long as the context lasts.

    Names of parameters and saved files do not change. On a CPU attention is computed without the fused
    kernel meanwhile, because the compiler's code is faster in the backward pass.

    Args:
        encoders: The models. Without a compiler they stay unchanged and a warning is given: results are the
            same up to rounding, but training is slower.
        on_cpu: Whether they are on a CPU.
    """
    name = os.environ.get("CXX", "g++") if on_cpu else os.environ.get("CC", "gcc")
    if encoders and shutil.which(name.split()[0]) is None:
        logger.warning(f"compile: true needs a compiler ({name}), and there is none: training is slower.")
        encoders = []
    before = [encoder.config._attn_implementation for encoder in encoders]
    for encoder in encoders:
        if on_cpu:
            encoder.set_attn_implementation("eager")
        # Not Module.compile(): it does not compile the method `forward`, which sentence-transformers calls.
        encoder.forward = torch.compile(encoder.forward, dynamic=True)
    try:
        with torch._dynamo.config.patch(recompile_limit=MAX_VARIANTS) if encoders else nullcontext():
            yield
    finally:
        for encoder, attention in zip(encoders, before, strict=True):
            del encoder.forward
            if on_cpu:
                encoder.set_attn_implementation(attention)


@contextmanager
def checkpointed(encoders: list[Any]) -> Iterator[None]:
    """Recompute the activations of the trained ones of some encoders instead of keeping them.

    Raises:
        MarError: An encoder does not support it.
    """
    trained = [encoder for encoder in encoders if any(p.requires_grad for p in encoder.parameters())]
    for encoder in trained:
        if not encoder.supports_gradient_checkpointing:
            raise MarError(
                f"{type(encoder).__name__} does not support gradient_checkpointing. Set it to false, or "
                "give mini_batch_size to need less memory."
            )
        encoder.activation_checkpointing_enable()
    try:
        yield
    finally:
        for encoder in trained:
            encoder.activation_checkpointing_disable()


@contextmanager
def mixed_with_start(model: nn.Module, share: float) -> Iterator[None]:
    """Interpolate the weights of a model with those it has now, in place, when the block ends.

    Each becomes `(1 - share) * trained + share * start` (Wortsman et al. 2022, WiSE-FT): fine-tuning on few
    texts forgets what the encoder knew of others, and interpolated weights often retrieve better than the
    weights at either end. Parameters that need no gradient when the block begins are left as they are. The
    start is kept on the CPU.

    Args:
        model: The model that the block trains.
        share: Share of the weights at the start, from 0 to 1; with 0 nothing is copied or changed.
    """
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    start = {name: weight.detach().cpu().clone() for name, weight in trained} if share else {}
    yield
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in start:
                before = start[name].to(weight.device, torch.float32)
                weight.copy_(torch.lerp(weight.float(), before, share))
