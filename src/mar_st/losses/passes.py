"""GradCache in passes of limited rows or tokens."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext, _minibatch_ranges
from torch import Tensor

from mar_st.losses.columns import can_be_cut, in_order, some_rows, spans_of
from mar_st.text.texts import token_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Rows of a pass that is limited only by tokens.
UNLIMITED_ROWS = 2**31


@dataclass
class Cached:
    """Inputs of `calculate_loss` besides the vectors of the passes.

    Attributes:
        labels: Labels of the batch.
        orders: Order of the rows in the passes of each column; `None`: unchanged.
        scale_gradient: Gradient of a learnt temperature, which `calculate_loss` sets.
    """

    labels: Any
    orders: list[np.ndarray | None]
    scale_gradient: Tensor | None = None

    def joined(self, reps: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return the vectors of the columns in the order of their rows, from those of the passes."""
        whole = (torch.cat(list(column)) for column in reps)
        return [
            vectors if order is None else in_order(vectors, order)
            for vectors, order in zip(whole, self.orders, strict=True)
        ]


class PassesMixin(CachedLossMixin):
    """GradCache of sentence-transformers with passes limited in rows, in tokens, or in both.

    Padding counts as tokens. With a limit on tokens, the texts of a column are encoded longest first, so that
    a pass of short texts holds many.
    """

    mini_batch_tokens: int | None = None

    def set_passes(self, rows: int | None, tokens: int | None) -> None:
        """Limit the passes; without a limit nothing is cached."""
        self.mini_batch_size = rows if rows is not None else UNLIMITED_ROWS
        self.mini_batch_tokens = tokens
        self.uses_gradient_cache = rows is not None or tokens is not None

    def orders_of(self, features: Sequence[dict[str, Any]]) -> list[np.ndarray | None]:
        """Return the order of the rows in the passes of each column."""
        return [
            np.concatenate(self._passes(spans_of(column["attention_mask"]))) if can_be_cut(column) else None
            for column in features
        ]

    def embed_minibatch_iter(
        self,
        sentence_feature: dict[str, Any],
        with_grad: bool,
        copy_random_state: bool,
        random_states: list[RandContext] | None = None,
        ranges: list[tuple[int, int]] | None = None,
    ) -> Iterator[tuple[Tensor, RandContext | None]]:
        """Encode a column pass by pass; passes depend only on its features, so a second call repeats them."""
        if not can_be_cut(sentence_feature):
            if self.mini_batch_tokens is not None:
                ranges = _minibatch_ranges(sentence_feature, self.mini_batch_size, self.mini_batch_tokens)
            yield from super().embed_minibatch_iter(
                sentence_feature, with_grad, copy_random_state, random_states, ranges
            )
            return
        spans = spans_of(sentence_feature["attention_mask"])
        state = vectors = None
        for index, rows in enumerate(self._passes(spans)):
            # Vectors of a frozen encoder get no gradient: one pass of the replay shows it, and is the last.
            if vectors is None or not with_grad or vectors.requires_grad:
                features = some_rows(sentence_feature, rows, spans)
                replayed = nullcontext() if random_states is None else random_states[index]
                with replayed, nullcontext() if with_grad else torch.no_grad():
                    state = RandContext(*features.values()) if copy_random_state else None
                    vectors = self.model(features)["sentence_embedding"]
            yield vectors, state

    def _passes(self, spans: np.ndarray) -> list[np.ndarray]:
        """Return the rows of each pass."""
        if self.mini_batch_tokens is not None:
            return token_batches(spans[1] - spans[0], self.mini_batch_tokens, rows=self.mini_batch_size)
        rows = np.arange(spans.shape[1])
        return [rows[start : start + self.mini_batch_size] for start in rows[:: self.mini_batch_size]]
