"""Query-encoder alignment: Stage I of MAR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sentence_transformers import SentenceTransformer


class AlignmentLoss(nn.Module):
    """Moves the query encoder into the space of the frozen document encoder (MAR paper, Stage I).

    Every text is paired with itself: with `s_i` the query-encoder vector and `t_i` the document-encoder
    vector of text `i`, and `j` over the texts of the batch,

        L = w_c * mean_i -log( exp(s_i.t_i / tau) / sum_j exp(s_i.t_j / tau) )
          + w_m * mean_i ||s_i - t_i||^2

    The squared distance is summed over the dimensions, not averaged. The teacher's vectors are computed once
    and given as labels, so a step costs the query encoder alone.

    Args:
        model: The model that holds the query encoder.
        temperature: tau of the contrastive part.
        contrastive_weight: `w_c`.
        mse_weight: `w_m`.

    Requirements:
        1. One text column.
        2. A `label` column with the teacher's vector of the same text, `(batch, dim)`, as wide as the vectors
           of the query route.

    Inputs:
        | columns | labels                            |
        |---------|-----------------------------------|
        | (text)  | teacher vectors `(batch, dim)`    |

    Relations:
        - `EmbedDistillLoss(distance_metric="mse")` averages over dimensions and has no contrastive part.
        - `AsymInfoNCELoss` trains both encoders on labelled pairs (Stage II).

    Example:
        ::

            teacher = mar.encode_corpus(texts)
            data = Dataset.from_dict({"text": texts, "label": teacher})
            loss = AlignmentLoss(mar)
            SentenceTransformerTrainer(model=mar, args=args, train_dataset=data, loss=loss).train()

    Raises:
        ValueError: Both weights are zero, a weight is negative, or the temperature is not positive.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        contrastive_weight: float = 1.0,
        mse_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive; got {temperature}.")
        if min(contrastive_weight, mse_weight) < 0 or contrastive_weight + mse_weight == 0:
            raise ValueError(
                "The weights must not be negative, nor both zero; got "
                f"contrastive_weight={contrastive_weight}, mse_weight={mse_weight}."
            )
        self.model = model
        self.temperature = temperature
        self.contrastive_weight = contrastive_weight
        self.mse_weight = mse_weight

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        """Loss of one batch.

        Raises:
            ValueError: No teacher vectors, more than one text column, or widths that differ.
        """
        columns = embed_columns(self.model, sentence_features)
        if len(columns) != 1 or labels is None:
            raise ValueError(
                f"AlignmentLoss takes one text column and teacher vectors as labels; got {len(columns)} text "
                f"columns and {'no labels' if labels is None else 'labels'}. "
                "Name the vectors' column 'label'."
            )
        students = columns[0]
        return self.compute_loss(students.float(), labels.float().to(students.device))

    def compute_loss(self, students: Tensor, teachers: Tensor) -> Tensor:
        """Loss from student vectors and teacher vectors, both `(batch, dim)` float32."""
        if students.shape != teachers.shape:
            raise ValueError(
                f"The query encoder gives vectors of shape {tuple(students.shape)}, the teacher's labels "
                f"have {tuple(teachers.shape)}. Cut the teacher to the query encoder's width."
            )
        loss = students.new_zeros(())
        if self.contrastive_weight:
            scores = students @ teachers.T / self.temperature
            target = torch.arange(len(scores), device=scores.device)
            loss = loss + self.contrastive_weight * nn.functional.cross_entropy(scores, target)
        if self.mse_weight:
            loss = loss + self.mse_weight * (students - teachers).square().sum(dim=1).mean()
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Settings, for the model card."""
        return {
            "temperature": self.temperature,
            "contrastive_weight": self.contrastive_weight,
            "mse_weight": self.mse_weight,
        }
