"""InfoNCE of the query encoder against stored document vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.util import all_gather, get_rank
from torch import Tensor, nn

from mar_st.losses.columns import embed_columns
from mar_st.losses.passes import Cached, PassesMixin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sentence_transformers import SentenceTransformer


class StoredInfoNCELoss(PassesMixin, nn.Module):
    """InfoNCE on labelled pairs with stored document vectors (HARNESS-LM, phase three).

    With `q_i` the vector of query `i`, `d_j` the stored vectors of all documents of the batch (positives and
    hard negatives) and `i+` the positive of query `i`:

        L = mean_i -log( exp(q_i.d_i+ / tau) / sum_j exp(q_i.d_j / tau) )

    Args:
        model: The model that holds the query encoder.
        temperature: tau.
        gather_across_devices: Also use the documents of the other processes as negatives.
        mini_batch_size: Queries encoded at a time (GradCache); the gradients stay the same. `None`: all at
            once.
        mini_batch_tokens: Tokens encoded at a time, padding included: passes of short texts hold more texts.

    Requirements:
        1. One text column, the queries.
        2. A `label` column with the stored vectors of each query's documents, the positive first.

    Inputs:
        | columns | labels                                       |
        |---------|----------------------------------------------|
        | (query) | document vectors `(batch, 1 + n, dim)`       |

    Relations:
        - `AsymInfoNCELoss` encodes the documents in the step; with a frozen document encoder its value is the
          same.
        - `AlignmentLoss` pairs a text with its own vector and needs no labelled pairs.

    Example:
        ```python
        vectors = mar.encode_corpus(documents).reshape(len(queries), 2, -1)   # positive, negative
        data = Dataset.from_dict({"query": queries, "label": vectors})
        loss = StoredInfoNCELoss(mar, temperature=0.05)
        SentenceTransformerTrainer(model=mar, args=args, train_dataset=data, loss=loss).train()
        ```

    Raises:
        ValueError: The temperature is not positive.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_tokens: int | None = None,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive; got {temperature}.")
        self.model = model
        self.temperature = temperature
        self.gather_across_devices = gather_across_devices
        self.set_passes(mini_batch_size, mini_batch_tokens)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        """Return the loss of one batch.

        Raises:
            ValueError: Document vectors are missing, there are several text columns, or shapes do not fit.
        """
        features = list(sentence_features)
        if len(features) != 1 or labels is None:
            raise ValueError(
                "StoredInfoNCELoss takes one text column and document vectors as labels; got "
                f"{len(features)} text columns and {'no labels' if labels is None else 'labels'}."
            )
        if self.uses_gradient_cache:
            loss: Tensor = self.forward_cached(features, Cached(labels, self.orders_of(features)))  # type: ignore[arg-type]
            return loss
        return self.compute_loss(embed_columns(self.model, features)[0], labels)

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of one batch from the vectors of its mini-batches (GradCache)."""
        batch: Cached = labels
        loss = self.compute_loss(batch.joined(reps)[0], batch.labels)
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss

    def compute_loss(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the float32 loss of queries `(batch, dim)` and documents `(batch, 1 + n, dim)`."""
        if documents.ndim != 3 or documents.shape[::2] != queries.shape:
            raise ValueError(
                f"Queries are of shape {tuple(queries.shape)} and documents of {tuple(documents.shape)}; "
                "expected are (batch, dim) and (batch, 1 + negatives, dim)."
            )
        with torch.autocast(queries.device.type, enabled=False):
            queries, documents = queries.float(), documents.to(queries.device).float()
            gather = self.gather_across_devices and torch.distributed.is_initialized()
            candidates = all_gather(documents) if gather else documents
            scores = queries @ candidates.flatten(0, 1).T / self.temperature
            first = get_rank() * len(queries) if gather else 0
            rows = torch.arange(first, first + len(queries), device=scores.device)
            return nn.functional.cross_entropy(scores, rows * documents.shape[1])

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {
            "temperature": self.temperature,
            "gather_across_devices": self.gather_across_devices,
            **self.passes_config,
        }
