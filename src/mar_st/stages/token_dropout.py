"""Token dropout: a training step sees a random part of each text's tokens.

An encoder memorises a small collection of pairs within a few epochs, unless the texts look different each
time. Dropout on activations does this too, but needs random numbers for every activation of every layer;
token dropout saves the work on the tokens it drops.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers.base.modules import Router, Transformer

from mar_st.errors import MarError
from mar_st.planning.backbones import POSITION_IDS_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

__all__ = ["TokenDropout"]


class TokenDropout:
    """Hides random tokens of collated texts from the encoder.

    Hidden tokens are neither attended to nor pooled, and the others keep their positions. Special tokens and
    the first token of a text are never hidden. Encoders that take position ids (`POSITION_IDS_ONLY`) get
    rows without the hidden tokens, which costs less; for others the attention mask hides the tokens. The
    vectors are the same up to rounding.

    Args:
        model: The model; its tokenizers tell which tokens are special.
        share: Probability that a token is hidden, at least 0 and below 1.
        seed: Seed of the draw, which depends only on seed, epoch, column and texts; a resumed run repeats it.
        epoch: Returns the epoch.
    """

    def __init__(
        self, model: SentenceTransformer, share: float, *, seed: int, epoch: Callable[[], int]
    ) -> None:
        self.share, self.seed, self.epoch = share, seed, epoch
        self.special = {route: _special_tokens(encoder) for route, encoder in _encoders(model).items()}
        self._placed = {route for route, encoder in _encoders(model).items() if _is_placed(encoder)}

    def __call__(self, batch: dict[str, Any], column: str, texts: Sequence[str]) -> None:
        """Hide tokens of one column of a collated batch, in place.

        Raises:
            MarError: The texts are packed without an attention mask.
        """
        tokens: Tensor | None = batch.get(f"{column}_input_ids")
        mask: Tensor | None = batch.get(f"{column}_attention_mask")
        if tokens is None or mask is None:
            raise MarError(
                "token_dropout works through the attention mask, and these batches have none (texts laid end "
                "to end). Set token_dropout: 0, or load the encoder with another attention implementation."
            )
        key = "\0".join([str(self.seed), str(self.epoch()), column, *texts])
        digest = hashlib.blake2b(key.encode(), digest_size=7).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest))
        drawn = torch.rand(tokens.shape, generator=generator) < self.share
        first = (mask.cumsum(dim=1) == 1) & mask.bool()
        route = batch.get(f"{column}_task") or ""
        kept = first | self.special[route][tokens]
        batch[f"{column}_attention_mask"] = mask.masked_fill(drawn & ~kept, 0)
        # Pooling finds a prompt that it leaves out by its length, so the prompt must stay whole and in place.
        if route in self._placed and f"{column}_prompt_length" not in batch:
            _close_up(batch, column)


def _close_up(batch: dict[str, Any], column: str) -> None:
    """Move the unmasked tokens of each row together, to the side without padding, and set positions."""
    mask: Tensor = batch[f"{column}_attention_mask"]
    width = mask.shape[1]
    longest = int(mask.sum(dim=1).max())
    # Kept tokens in their order, then hidden ones and padding; the other way round if padding is on the left.
    padded_left = not bool(mask[:, 0].all())
    order = torch.argsort(mask.bool(), dim=1, descending=not padded_left, stable=True)
    order = order[:, width - longest :] if padded_left else order[:, :longest]
    # By name: the tensors of `negative_1` begin with `negative_` too.
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        value = batch.get(f"{column}_{name}")
        if value is not None:
            batch[f"{column}_{name}"] = value.gather(1, order)
    batch[f"{column}_position_ids"] = order.contiguous()


def _encoders(model: SentenceTransformer) -> dict[str, Transformer]:
    """Return the transformer of every route; under "" for a model without routes.

    Raises:
        MarError: A route does not start with a transformer.
    """
    first: Any = model[0]
    encoders = {"": first}
    if isinstance(first, Router):
        encoders = {name: route[0] for name, route in cast("Any", first.sub_modules).items()}
    for module in encoders.values():
        if not isinstance(module, Transformer):
            raise MarError(f"token_dropout is for transformers; got {type(module).__name__}.")
    return encoders


def _special_tokens(encoder: Transformer) -> Tensor:
    """Return the mask of special tokens, `(vocabulary,)` bool."""
    tokenizer: Any = encoder.tokenizer
    special = torch.zeros(len(tokenizer), dtype=torch.bool)
    special[tokenizer.all_special_ids] = True
    return special


def _is_placed(encoder: Transformer) -> bool:
    forward = encoder.model_forward_params
    return encoder.config.model_type in POSITION_IDS_ONLY and (forward is None or "position_ids" in forward)
