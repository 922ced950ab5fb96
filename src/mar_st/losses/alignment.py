"""Query-encoder alignment: Stage I of MAR, and related losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sentence_transformers.util import all_gather, get_rank
from torch import Tensor, nn

from mar_st.losses.columns import PassesMixin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer


class AlignmentLoss(PassesMixin, nn.Module):
    """Moves the query encoder into the space of a frozen teacher (MAR paper, Stage I).

    Every text is paired with itself: with `s_i` the query-encoder vector and `t_i` the teacher's vector of
    text `i`, `d` dimensions `k`, and `j` over the texts of the batch,

        L = w_c * mean_i -log( exp(s_i.t_i / tau) / sum_j exp(s_i.t_j / tau) )
          + w_m * mean_i ||s_i - t_i||^2
          + w_s * mean_i (1 - cos(s_i, t_i))
          + w_k * T^2 * mean_i sum_k p_ik log(p_ik / q_ik),  p_i = softmax(t_i / T), q_i = softmax(s_i / T)

    The parts are Stage I (contrastive, squared distance; LEAF, HARNESS-LM and Wang & Lyu use only the
    distance), ScalingNote (distance and cosine) and KALE (KL over the *dimensions*). The squared distance is
    summed over the dimensions, not averaged. Vectors are not normalised here: a teacher that was cut after
    its normalisation has vectors shorter than 1, and their lengths count in the scores and in the distance.
    KALE and ScalingNote take vectors that are not normalised: for vectors of length 1 the distance is twice
    `1 - cos`, and the KL at T = 1 is nearly the distance divided by `2 d`, so these parts add nothing new.
    The teacher's vectors are computed once and given as labels, so a step runs only the query encoder.

    With several texts in a row the loss is the sum over the columns, each with its weight; KALE adds a
    second, unrelated text to each query.

    Args:
        model: The model that holds the query encoder.
        temperature: tau of the contrastive part.
        contrastive_weight: `w_c`.
        mse_weight: `w_m`.
        cosine_weight: `w_s`.
        kl_weight: `w_k`.
        kl_temperature: T of the KL part.
        text_weights: Weight of each text column.
        gather_across_devices: Also use the teacher vectors of the other processes as negatives, so that a
            batch split over processes has the gradients of the whole batch.
        mini_batch_size: Texts encoded at a time (GradCache); the gradients stay the same. `None`: all at
            once.
        mini_batch_tokens: Tokens encoded at a time, padding included: passes of short texts hold more texts.

    Requirements:
        1. As many text columns as `text_weights`.
        2. A `label` column with the teacher's vector of the same text, as wide as the vectors of the query
           route; for several columns their vectors in the order of the columns.

    Inputs:
        | columns        | labels                               |
        |----------------|--------------------------------------|
        | (text)         | teacher vectors `(batch, dim)`       |
        | (text, second) | teacher vectors `(batch, 2, dim)`    |

    Relations:
        - `EmbedDistillLoss(distance_metric="mse")` averages over dimensions and has no contrastive part.
        - `DistillKLDivLoss` compares distributions over documents; the KL here is over dimensions.
        - `AsymInfoNCELoss` trains both encoders on labelled pairs, or the query encoder against stored
          document vectors (Stage II).

    Example:
        ```python
        teacher = mar.encode_corpus(texts)
        data = Dataset.from_dict({"text": texts, "label": teacher})
        loss = AlignmentLoss(mar)
        SentenceTransformerTrainer(model=mar, args=args, train_dataset=data, loss=loss).train()
        ```
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        contrastive_weight: float = 1.0,
        mse_weight: float = 1.0,
        cosine_weight: float = 0.0,
        kl_weight: float = 0.0,
        kl_temperature: float = 1.0,
        text_weights: Sequence[float] = (1.0,),
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.weights = {
            "contrastive": contrastive_weight,
            "mse": mse_weight,
            "cosine": cosine_weight,
            "kl": kl_weight,
        }
        self.text_weights = tuple(text_weights)
        self.model = model
        self.temperature = temperature
        self.kl_temperature = kl_temperature
        self.gather_across_devices = gather_across_devices
        self.set_passes(mini_batch_size, mini_batch_tokens)
        self.last_parts: dict[str, Tensor] = {}

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss from the vectors of the text columns, each `(batch, dim)`."""
        return self.compute_loss(torch.stack(list(embeddings), dim=1), labels)

    def compute_loss(self, students: Tensor, teachers: Tensor) -> Tensor:
        """Return the loss from student vectors and teacher vectors, computed in float32.

        Both are `(batch, columns, dim)`, or `(batch, dim)` for one text in a row.
        """
        with torch.autocast(students.device.type, enabled=False):
            students, teachers = students.float(), teachers.to(students.device).float()
            columns = [(one if one.ndim == 3 else one[:, None]).unbind(1) for one in (students, teachers)]
            parts = {
                name: weight
                * torch.stack(
                    [
                        share * getattr(self, f"_{name}")(student, teacher)
                        for share, student, teacher in zip(self.text_weights, *columns, strict=True)
                    ]
                ).sum()
                for name, weight in self.weights.items()
                if weight
            }
        self.last_parts = {name: part.detach() for name, part in parts.items()}
        return torch.stack(list(parts.values())).sum()

    def _contrastive(self, students: Tensor, teachers: Tensor) -> Tensor:
        gather = self.gather_across_devices and torch.distributed.is_initialized()
        candidates = all_gather(teachers) if gather else teachers
        scores = students @ candidates.T / self.temperature
        first = get_rank() * len(scores) if gather else 0
        target = torch.arange(first, first + len(scores), device=scores.device)
        return nn.functional.cross_entropy(scores, target)

    def _mse(self, students: Tensor, teachers: Tensor) -> Tensor:
        return (students - teachers).square().sum(dim=1).mean()

    def _cosine(self, students: Tensor, teachers: Tensor) -> Tensor:
        return (1 - nn.functional.cosine_similarity(students, teachers)).mean()

    def _kl(self, students: Tensor, teachers: Tensor) -> Tensor:
        target = nn.functional.log_softmax(teachers / self.kl_temperature, dim=1)
        predicted = nn.functional.log_softmax(students / self.kl_temperature, dim=1)
        divergence = nn.functional.kl_div(predicted, target, reduction="batchmean", log_target=True)
        return divergence * self.kl_temperature**2
