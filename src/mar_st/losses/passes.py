"""GradCache in passes of limited rows or tokens, cut without waiting for the device."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext, _minibatch_ranges
from torch import Tensor

from mar_st.losses.columns import can_be_cut, longest_first, some_rows, spans_of, without_spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

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
    orders: list[Tensor | None]
    scale_gradient: Tensor | None = None

    def joined(self, reps: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return the vectors of the columns in the order of their rows, from those of the passes."""
        whole = [torch.cat(list(column)) for column in reps]
        return [
            vectors if order is None else vectors[torch.argsort(order)]
            for vectors, order in zip(whole, self.orders, strict=True)
        ]


class PassesMixin(CachedLossMixin):
    """GradCache of sentence-transformers with passes limited in rows, in tokens, or in both.

    Padding counts as tokens. With a limit on tokens, the texts of a column are encoded longest first, so that
    a pass of short texts holds many. With spans that a collator adds to the features (`SPANS`), nothing waits
    for the device to learn their lengths.
    """

    mini_batch_tokens: int | None = None

    def set_passes(self, rows: int | None, tokens: int | None) -> None:
        """Limit the passes; without a limit nothing is cached."""
        self.mini_batch_size = rows if rows is not None else UNLIMITED_ROWS
        self.mini_batch_tokens = tokens
        self.uses_gradient_cache = rows is not None or tokens is not None

    def orders_of(self, features: Sequence[dict[str, Any]]) -> list[Tensor | None]:
        """Return the order of the rows in the passes of each column."""
        orders: list[Tensor | None] = []
        for column in features:
            plain, spans = without_spans(column)
            if self.mini_batch_tokens is None or not can_be_cut(plain):
                orders.append(None)
            else:
                mask = plain["attention_mask"]
                orders.append(longest_first(mask, spans_of(mask) if spans is None else spans)[0])
        return orders

    def embed_minibatch_iter(
        self,
        sentence_feature: dict[str, Any],
        with_grad: bool,
        copy_random_state: bool,
        random_states: list[RandContext] | None = None,
        ranges: list[tuple[int, int]] | None = None,
    ) -> Iterator[tuple[Tensor, RandContext | None]]:
        """Encode a column pass by pass; passes depend only on its features, so a second call repeats them."""
        plain, spans = without_spans(sentence_feature)
        if not can_be_cut(plain):
            if self.mini_batch_tokens is not None:
                ranges = _minibatch_ranges(plain, self.mini_batch_size, self.mini_batch_tokens)
            yield from super().embed_minibatch_iter(
                plain, with_grad, copy_random_state, random_states, ranges
            )
            return
        state = vectors = None
        for index, features in enumerate(self._passes(plain, spans)):
            # Vectors of a frozen encoder get no gradient: one pass of the replay shows it, and is the last.
            if vectors is None or not with_grad or vectors.requires_grad:
                replayed = nullcontext() if random_states is None else random_states[index]
                with replayed, nullcontext() if with_grad else torch.no_grad():
                    state = RandContext(*features.values()) if copy_random_state else None
                    vectors = self.model(features)["sentence_embedding"]
            yield vectors, state

    def _passes(self, features: dict[str, Any], spans: np.ndarray | None) -> Iterator[dict[str, Any]]:
        mask = features["attention_mask"]
        if spans is None:
            spans = spans_of(mask)
        rows = len(mask)
        if self.mini_batch_tokens is None:
            for start in range(0, rows, self.mini_batch_size):
                chosen = slice(start, min(start + self.mini_batch_size, rows))
                yield some_rows(features, chosen, spans[:, chosen])
            return
        order, here = longest_first(mask, spans)
        start = 0
        for end in token_cuts(spans[:, here], self.mini_batch_size, self.mini_batch_tokens):
            yield some_rows(features, order[start:end], spans[:, here[start:end]])
            start = end


def token_cuts(spans: np.ndarray, rows: int, tokens: int) -> list[int]:
    """Return the ends of passes over texts of descending length, each of at most `tokens` with padding.

    A longer text is a pass by itself.

    Args:
        spans: Spans of the texts, `(2, texts)`.
        rows: Maximum number of texts in a pass.
        tokens: Maximum number of tokens in a pass.
    """
    cuts: list[int] = []
    count, first, end = 0, 0, 0
    for number, (begin, stop) in enumerate(spans.T.tolist()):
        lowest, highest = (min(first, begin), max(end, stop)) if count else (begin, stop)
        if count and (count == rows or (count + 1) * (highest - lowest) > tokens):
            cuts.append(number)
            count, lowest, highest = 0, begin, stop
        count, first, end = count + 1, lowest, highest
    return [*cuts, spans.shape[1]]
