"""Token dropout: a step of training sees a random part of each text's tokens.

Small collections of pairs are learnt by heart within a few epochs; a text that looks different each time is
not. Dropout on activations does this too, but costs random numbers for every activation of every layer.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers.base.modules import Router, Transformer

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

__all__ = ["TokenDropout"]


class TokenDropout:
    """Hides random tokens of collated texts from the encoder, through the attention mask.

    Hidden tokens are neither attended to nor pooled, and the others keep their positions. Special tokens and
    the first token of a text are never hidden.

    Args:
        model: Its tokenizers tell which tokens are special.
        share: Probability that a token is hidden, at least 0 and below 1.
        seed: Of the draw. It depends on seed, epoch, column and texts alone, so a resumed run repeats it.
        epoch: Tells the epoch.
    """

    def __init__(
        self, model: SentenceTransformer, share: float, *, seed: int, epoch: Callable[[], int]
    ) -> None:
        self.share, self.seed, self.epoch = share, seed, epoch
        self.special = _special_tokens(model)

    def __call__(self, batch: dict[str, Any], column: str, texts: Sequence[str]) -> None:
        """Hide tokens of one column of a collated batch, in place.

        Raises:
            MarError: The texts lie end to end, without an attention mask.
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
        kept = first | self.special[batch.get(f"{column}_task") or ""][tokens]
        batch[f"{column}_attention_mask"] = mask.masked_fill(drawn & ~kept, 0)


def _special_tokens(model: SentenceTransformer) -> dict[str, Tensor]:
    """Which tokens are special, `(vocabulary,)` bool, for every route, or under "" without routes."""
    first: Any = model[0]
    modules = (
        {name: route[0] for name, route in cast("Any", first.sub_modules).items()}
        if isinstance(first, Router)
        else {"": first}
    )
    result = {}
    for name, module in modules.items():
        if not isinstance(module, Transformer):
            raise MarError(f"token_dropout is for transformers; got a {type(module).__name__}.")
        special = torch.zeros(len(module.tokenizer), dtype=torch.bool)
        special[module.tokenizer.all_special_ids] = True
        result[name] = special
    return result
