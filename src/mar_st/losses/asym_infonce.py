"""Asym-InfoNCE: the contrastive loss between the query encoder and the document encoder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score, get_rank
from torch import Tensor, nn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class AsymInfoNCELoss(MultipleNegativesRankingLoss):
    """InfoNCE over the two routes of a MAR (MAR paper, Stage II; Stage I uses it inside `AlignmentLoss`).

    With `s_ij = sim(E_Q(q_i), E_D(d_j))`, the documents `j` of the whole batch (positives and hard negatives)
    and `i+` the positive of query `i`:

        L = mean_i -log( exp(s_ii+ / tau) / sum_j exp(s_ij / tau) )

    The similarity is the model's own: cosine for models that renormalise after truncation, dot product for
    the published form.

    Args:
        model: The MAR (any model whose `router_mapping` sends the columns to its routes; a symmetric one
            works too).
        temperature: tau, its initial value if it is learnt.
        learnable_temperature: Learn `log(1 / tau)`; kept between 1/1000 and 1.
        false_negative_margin: Leave out documents of *other* rows that score more than this above the row's
            own positive: they are probably unlabelled positives. `None` keeps all.
        gather_across_devices: Also use the documents of the other processes as negatives.

    Requirements:
        1. Columns `query`, `positive`, then any number of negatives, in this order.
        2. A `router_mapping` from these columns to `query` / `document` for an asymmetric model.

    Inputs:
        | columns                                     | labels |
        |---------------------------------------------|--------|
        | (query, positive) texts                     | none   |
        | (query, positive, negative_1, ..., _n)      | none   |

    Relations:
        - `MultipleNegativesRankingLoss` computes the same value for a fixed temperature and no margin
          (tested); this class adds the learnable temperature, the false-negative margin and the model's own
          similarity.
        - `AlignmentLoss` trains the query encoder alone, against stored document-encoder vectors.

    Example:
        ::

            loss = AsymInfoNCELoss(mar, temperature=0.02)
            SentenceTransformerTrainer(model=mar, args=args, train_dataset=triples, loss=loss).train()

    Raises:
        ValueError: The temperature is not positive, or the margin is negative.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.02,
        learnable_temperature: bool = False,
        false_negative_margin: float | None = None,
        gather_across_devices: bool = False,
    ) -> None:
        if temperature <= 0:
            raise ValueError(f"temperature must be positive; got {temperature}.")
        if false_negative_margin is not None and false_negative_margin < 0:
            raise ValueError(f"false_negative_margin must not be negative; got {false_negative_margin}.")
        self._similarity = dot_score if model.similarity_fn_name == "dot" else cos_sim
        super().__init__(
            model, scale=1.0, similarity_fct=self._scaled_scores, gather_across_devices=gather_across_devices
        )
        self.learnable_temperature = learnable_temperature
        self.false_negative_margin = false_negative_margin
        log_scale = torch.tensor(-math.log(temperature), device=model.device)
        if learnable_temperature:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale, persistent=False)

    @property
    def temperature(self) -> float:
        """The current value of tau."""
        return float(torch.exp(-self.log_scale.detach()))

    def _scaled_scores(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Scores over tau, `(queries, documents)`; probable false negatives are set to minus infinity."""
        scores = self._similarity(queries.float(), documents.float())
        if self.false_negative_margin is not None:
            rows = torch.arange(scores.size(0), device=scores.device)
            own = rows + (get_rank() * scores.size(0) if self.gather_across_devices else 0)
            limit = scores.detach()[rows, own] + self.false_negative_margin
            too_high = scores.detach() > limit[:, None]
            # Columns come in blocks of one world batch: positives, first negatives, ... A row keeps its own.
            world = scores.size(0) * (torch.distributed.get_world_size() if self.gather_across_devices else 1)
            for block in range(0, scores.size(1), world):
                too_high[rows, block + own] = False
            scores = scores.masked_fill(too_high, -torch.inf)
        return scores * self.log_scale.clamp(0.0, math.log(1000.0)).exp()

    def get_config_dict(self) -> dict[str, Any]:
        """Settings, for the model card."""
        return {
            "temperature": self.temperature,
            "learnable_temperature": self.learnable_temperature,
            "false_negative_margin": self.false_negative_margin,
            "gather_across_devices": self.gather_across_devices,
        }
