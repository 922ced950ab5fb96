"""Collating the rows of a batch into token tensors, some of which may be hidden (token dropout)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from mar_st.errors import MarError
from mar_st.planning.backbones import POSITION_IDS_ONLY
from mar_st.stages.samplers import SOURCE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

#: Key of a collated batch that holds its numbers of texts and of tokens, without padding.
COUNTS_KEY = "counts"


@dataclass
class StageCollator(SentenceTransformerDataCollator):
    """sentence-transformers' collator that counts tokens, hides some, and takes rows of several datasets.

    Rows of several datasets need one route per column. Their prompts are put in front of the texts here, as
    the model's `preprocess` would do.

    Args:
        mixed: Whether a batch may hold rows of several datasets. In both cases, `prompts` and
            `router_mapping` are keyed by dataset and column.
        dropout: Hides tokens of the batch.
    """

    mixed: bool = False
    dropout: TokenDropout | None = None

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the tensors of a batch of rows."""
        if self.mixed:
            features = [self._with_prompts(row) for row in features]
        batch = super().__call__(features)
        columns = [name for name in features[0] if name not in (SOURCE_COLUMN, *DEFAULT_LABEL_COLUMNS)]
        tokens = 0
        for column in columns:
            if self.dropout is not None:
                self.dropout(batch, column, [row[column] for row in features])
            mask = batch.get(f"{column}_attention_mask")
            if mask is not None:
                tokens += int(mask.sum())
        batch[COUNTS_KEY] = (len(features) * len(columns), tokens)
        return batch

    def _with_prompts(self, row: dict[str, Any]) -> dict[str, Any]:
        prompts: Any = self.prompts or {}
        own = prompts.get(row[SOURCE_COLUMN], {})
        return {column: own[column] + value if own.get(column) else value for column, value in row.items()}

    def _resolve_prompts(self, batch: dict[str, Any]) -> str | dict[str, str] | None:
        return {} if self.mixed else super()._resolve_prompts(batch)


def check_mixture(
    stage: str,
    columns: Mapping[str, Sequence[str]],
    router_mapping: Mapping[str, Mapping[str, str]],
) -> None:
    """Refuse `batches: mixed` for datasets whose rows cannot share a batch.

    Args:
        stage: Name of the stage, for the message.
        columns: Columns of each dataset, labels included.
        router_mapping: Route of each column, by dataset.

    Raises:
        MarError: Columns, or routes of a column, differ between datasets.
    """
    first, *others = columns
    for other in others:
        if list(columns[first]) != list(columns[other]) or router_mapping[first] != router_mapping[other]:
            raise MarError(
                f"stage {stage}: 'batches: mixed' needs the same columns and routes in all data; {first!r} "
                f"has {', '.join(columns[first])} and {other!r} has {', '.join(columns[other])}. Give them "
                "the same number of negatives, use 'batches: one-source', or leave one out with 'data'."
            )


class TokenDropout:
    """Hides random tokens of collated texts, so that a step sees a random part of each text.

    An encoder memorises a small collection of pairs within a few epochs, unless the texts look different each
    time. Hidden tokens are neither attended to nor pooled, and the others keep their positions. Special
    tokens and the first token of a text are never hidden. Encoders that take position ids
    (`POSITION_IDS_ONLY`) get rows without the hidden tokens, which costs less; for others the attention mask
    hides the tokens. The vectors are the same up to rounding.

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
        first: Any = model[0]
        routes = first.sub_modules.items() if isinstance(first, Router) else [("", [first])]
        encoders = {route: modules[0] for route, modules in routes}  # type: ignore[index]
        other = next((module for module in encoders.values() if not isinstance(module, Transformer)), None)
        if other is not None:
            raise MarError(f"token_dropout is for transformers; got {type(other).__name__}.")
        self.special = {}
        for route, encoder in encoders.items():
            self.special[route] = torch.zeros(len(encoder.tokenizer), dtype=torch.bool)
            self.special[route][encoder.tokenizer.all_special_ids] = True
        self._placed = {
            route
            for route, encoder in encoders.items()
            if encoder.config.model_type in POSITION_IDS_ONLY
            and (encoder.model_forward_params is None or "position_ids" in encoder.model_forward_params)
        }

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
