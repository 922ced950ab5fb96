"""Vectors of the columns of a batch, with little padding, and GradCache in passes of limited rows or tokens.

Rows may be grouped into batches by length (`length_groups`), but each row has one length there: if a row has
a short query, a long positive and a short negative, its columns are still padded. Here the texts of a column
are encoded a few at a time, long ones together, and put back into their order.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext, _minibatch_ranges
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor

from mar_st.text.texts import token_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import nn


#: Overhead of a forward pass, in tokens of equal cost (small encoders, CPU).
PASS_OVERHEAD_TOKENS = 512

#: Maximum number of passes that a column is encoded in.
MAX_PASSES = 16

#: Passes of a column if several processes train together: all need the same number, because data-parallel
#: modules exchange their buffers in each.
DISTRIBUTED_PASSES = 4

#: Minimum number of texts in a pass, so that no pass has a single text (code would be compiled again for it).
MIN_PASS_TEXTS = 4


def embed_columns(model: nn.Module, features: Iterable[dict[str, Any]]) -> list[Tensor]:
    """Return the vectors of every column, `(rows, dim)` each, in their order.

    The first column is encoded by itself; the others together if they go through one encoder, as
    sentence-transformers' function of this name does. Gradients are the same up to rounding and the drawn
    dropout.

    Args:
        model: The model.
        features: Output of the model's tokenizer for each column.
    """
    first, *others = features
    merged = merge_feature_batches(others) if len(others) > 1 else None
    if merged is None:
        return [_embed(model, column) for column in (first, *others)]
    embedded = _embed(model, first)
    vectors = _embed(model, merged)
    return [embedded, *vectors.reshape(len(others), -1, *vectors.shape[1:]).unbind(0)]


def spans_of(mask: Tensor) -> np.ndarray:
    """Return the first position of each text and the one after its last, `(2, rows)` int64."""
    attended = mask.bool()
    end = (attended * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=1)
    first = attended.to(torch.uint8).argmax(dim=1)
    return torch.stack([first, end]).cpu().numpy()


def _embed(model: nn.Module, features: dict[str, Any]) -> Tensor:
    if can_be_cut(features) and len(features["attention_mask"]) >= 2 * MIN_PASS_TEXTS:
        spans = spans_of(features["attention_mask"])
        lengths = spans[1] - spans[0]
        order = np.argsort(-lengths, kind="stable")
        sizes = _sizes(lengths[order].tolist())
        if len(sizes) > 1:
            passes = np.split(order, np.cumsum(sizes)[:-1])
            parts = [model(some_rows(features, rows, spans))["sentence_embedding"] for rows in passes]
            return in_order(torch.cat(parts), order)
    whole: Tensor = model(features)["sentence_embedding"]
    return whole


def in_order(vectors: Tensor, order: np.ndarray) -> Tensor:
    """Return vectors of the rows `order`, in the order of the rows."""
    return vectors[torch.from_numpy(np.argsort(order)).to(vectors.device)]


def can_be_cut(features: dict[str, Any]) -> bool:
    """Return True if every tensor has one row per text: no packed texts, no scalar prompt length."""
    mask = features.get("attention_mask")
    if mask is None or mask.ndim != 2:
        return False
    return all(
        value.ndim >= 1 and len(value) == len(mask)
        for value in features.values()
        if isinstance(value, Tensor)
    )


def _sizes(lengths: Sequence[int]) -> list[int]:
    """Return the number of texts, sorted by descending length, in each pass."""
    most = min(MAX_PASSES, len(lengths) // MIN_PASS_TEXTS)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return _even(len(lengths), min(DISTRIBUTED_PASSES, most))
    candidates = (_even(len(lengths), passes) for passes in range(1, most + 1))
    return min(candidates, key=lambda sizes: _cost(lengths, sizes))


def _even(rows: int, passes: int) -> list[int]:
    least, more = divmod(rows, passes)
    return [least + 1] * more + [least] * (passes - more)


def _cost(lengths: Sequence[int], sizes: Sequence[int]) -> int:
    start = cost = 0
    for size in sizes:
        cost += size * lengths[start] + PASS_OVERHEAD_TOKENS
        start += size
    return cost


def some_rows(features: dict[str, Any], rows: np.ndarray, spans: np.ndarray) -> dict[str, Any]:
    """Return some rows of the features, without the columns that are padding in all of them.

    Args:
        features: Features of a column.
        rows: Numbers of the rows.
        spans: Spans of all rows, see `spans_of`.
    """
    width = features["attention_mask"].shape[1]
    first, end = int(spans[0, rows].min()), int(spans[1, rows].max())
    chosen = torch.from_numpy(rows).to(features["attention_mask"].device)
    selected = {}
    for name, value in features.items():
        if isinstance(value, Tensor):
            value = value[chosen]
            if value.ndim >= 2 and value.shape[1] == width > end - first > 0:
                value = value[:, first:end].contiguous()  # other strides, or a view, would be compiled again
        selected[name] = value
    return selected


#: Rows of a pass that is limited only by tokens.
UNLIMITED_ROWS = 2**31


@dataclass
class Cached:
    """Inputs of `calculate_loss` besides the vectors of the passes.

    Attributes:
        labels: Labels of the batch.
        orders: Order of the rows in the passes of each column; `None`: unchanged.
        gradients: Gradients of the loss's own parameters, which `calculate_loss` sets.
    """

    labels: Any
    orders: list[np.ndarray | None]
    gradients: list[Tensor] = field(default_factory=list)

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

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Any) -> Tensor:
        """Return the loss from the vectors of the columns."""
        raise NotImplementedError

    def own_parameters(self) -> list[Tensor]:
        """Return the parameters of the loss besides those of the model."""
        return []

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of one batch; its parts are in `last_parts` afterwards."""
        features = list(sentence_features)
        if not self.uses_gradient_cache:
            return self.compute_loss_from_embeddings(embed_columns(self.model, features), labels)
        orders = [
            np.concatenate(self._passes(spans_of(column["attention_mask"]))) if can_be_cut(column) else None
            for column in features
        ]
        batch = Cached(labels, orders)
        loss: Tensor = self.forward_cached(features, batch)  # type: ignore[arg-type]
        for parameter, gradient in zip(self.own_parameters(), batch.gradients, strict=False):
            loss = loss + (parameter - parameter.detach()) * gradient  # adds 0, with this gradient
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss from mini-batch vectors (GradCache); `with_backward` also gives them gradients."""
        batch: Cached = labels
        loss = self.compute_loss_from_embeddings(batch.joined(reps), batch.labels)
        if not with_backward:
            return loss
        vectors = [part for column in reps for part in column]
        gradients = torch.autograd.grad(loss, [*vectors, *self.own_parameters()])
        batch.gradients = list(gradients[len(vectors) :])
        for part, gradient in zip(vectors, gradients, strict=False):
            part.grad = gradient
        return loss.detach()

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
