"""Gradient checkpointing of the trained encoders."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.stages.compiling import transformers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentence_transformers import SentenceTransformer


@contextmanager
def gradient_checkpointing(model: SentenceTransformer, *, enabled: bool, stage: str) -> Iterator[None]:
    """Recompute the activations of the trained encoders in the backward pass instead of keeping them."""
    models = transformers_of(model) if enabled else []
    encoders: list[Any] = [e for e in models if any(p.requires_grad for p in e.parameters())]
    for encoder in encoders:
        try:
            _checkpoint(encoder, enabled=True)
        except ValueError as error:
            raise MarError(
                f"stage {stage}: {type(encoder).__name__} does not support gradient_checkpointing ({error}). "
                "Set it to false, or give mini_batch_size to need less memory."
            ) from error
    try:
        yield
    finally:
        for encoder in encoders:
            _checkpoint(encoder, enabled=False)


def _checkpoint(encoder: Any, *, enabled: bool) -> None:
    if hasattr(encoder, "activation_checkpointing_enable"):
        (encoder.activation_checkpointing_enable if enabled else encoder.activation_checkpointing_disable)()
    elif enabled:  # an older transformers, whose default gives an adapter in the first layer no gradient
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        encoder.gradient_checkpointing_disable()
