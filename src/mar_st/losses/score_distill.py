"""Score distillation: a symmetric student learns how a teacher ranks the documents of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.functional import kl_div, log_softmax

from mar_st.losses.asym_infonce import check_margin
from mar_st.losses.in_batch import InBatchLoss, Scope, blocks, infonce

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


class ScoreDistillLoss(InBatchLoss):
    """KL between the scores of teacher and student, and InfoNCE (RocketQAv2; `kl_div` of FlagEmbedding).

    With the student's scores `s_ij` and the teacher's `t_ij` of query `i` and document `j`, `j` over the
    documents of the whole batch (the query's own positive and hard negatives, and those of the others):

        L = w_k * mean_i KL( softmax_j(t_ij / T) || softmax_j(s_ij / tau) )
          + w_c * mean_i -log( exp(s_ii+ / tau) / sum_j exp(s_ij / tau) )

    The teacher's vectors are computed once and given as labels, so a step costs the student alone, and the
    widths of teacher and student may differ: only scores meet.

    Args:
        model: The student.
        temperature: tau.
        teacher_temperature: T; default tau.
        kl_weight: `w_k`.
        contrastive_weight: `w_c`.
        false_negative_margin: Leave out of the *contrastive* part documents of other rows that score more
            than this above the row's own positive; the KL keeps them, the teacher knows what they are worth.
        gather_across_devices: Also use the documents of the other processes.
        mini_batch_size: Rows of a column that are encoded at a time (GradCache); the gradients stay the
            same. `None`: all at once.

    Requirements:
        1. Columns `query`, `positive`, then any number of negatives, in this order.
        2. A `label` column with the teacher's vectors of a row's texts in the order of the columns. Their dot
           product is the teacher's score, so they have length 1 for a teacher that scores by cosine.

    Inputs:
        | columns                                | labels                                            |
        |----------------------------------------|---------------------------------------------------|
        | (query, positive, negative_1, ..., _n) | teacher vectors `(batch, 2 + n, width)`           |

    Relations:
        - `DistillKLDivLoss` takes scores, of each query's own candidates; here all documents of the batch are
          candidates, so that a row needs no hard negatives.
        - `AsymInfoNCELoss` is the contrastive part.
        - `AlignmentLoss` learns vectors instead of scores; widths must then agree.

    Example:
        ::

            columns = ["query", "positive", "negative_1"]
            vectors = [teacher.encode(triples[name], normalize_embeddings=True) for name in columns]
            data = triples.add_column("label", list(numpy.stack(vectors, axis=1).tolist()))
            loss = ScoreDistillLoss(student, temperature=0.02)
            SentenceTransformerTrainer(model=student, args=args, train_dataset=data, loss=loss).train()

    Raises:
        ValueError: A temperature is not positive, a weight or the margin is negative, or both weights are 0.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.02,
        teacher_temperature: float | None = None,
        kl_weight: float = 1.0,
        contrastive_weight: float = 1.0,
        false_negative_margin: float | None = None,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__(
            model,
            temperature=temperature,
            gather_across_devices=gather_across_devices,
            mini_batch_size=mini_batch_size,
        )
        if teacher_temperature is not None and teacher_temperature <= 0:
            raise ValueError(f"teacher_temperature must be positive; got {teacher_temperature}.")
        if min(kl_weight, contrastive_weight) < 0 or not kl_weight + contrastive_weight:
            raise ValueError(
                f"The weights must not be negative, nor all zero; got kl_weight={kl_weight}, "
                f"contrastive_weight={contrastive_weight}."
            )
        check_margin(false_negative_margin)
        self.teacher_temperature = teacher_temperature or temperature
        self.kl_weight, self.contrastive_weight = kl_weight, contrastive_weight
        self.false_negative_margin = false_negative_margin

    def targets(self, labels: Tensor | None, columns: int) -> tuple[Tensor, Tensor]:
        """The teacher's vectors of all queries `(world, width)` and documents `(blocks * world, width)`.

        Raises:
            ValueError: There are none, or not one for each text.
        """
        if labels is None or labels.ndim != 3 or labels.shape[1] != columns:
            got = "no labels" if labels is None else f"labels of shape {tuple(labels.shape)}"
            raise ValueError(
                f"ScoreDistillLoss needs the teacher's vectors of the {columns} texts of each row as labels, "
                f"(batch, {columns}, width); got {got}."
            )
        whole = self.gathered(labels.detach().to(self.log_scale.device).float())
        return whole[:, 0], blocks(whole[:, 1:])

    def parts(self, queries: Tensor, documents: Tensor, scope: Scope) -> dict[str, Tensor]:
        """Both parts of some rows, weighted and summed over them."""
        scores = queries[scope.rows] @ documents.T
        found = {}
        if self.kl_weight:
            of_queries, of_documents = scope.targets
            wanted = of_queries[scope.rows] @ of_documents.T / self.teacher_temperature
            divergence = kl_div(
                log_softmax(scores * scope.scale, dim=1),
                log_softmax(wanted, dim=1).to(scores.dtype),
                reduction="sum",
                log_target=True,
            )
            found["kl"] = self.kl_weight * divergence
        if self.contrastive_weight:
            found["contrastive"] = self.contrastive_weight * infonce(
                scores, scope, self.false_negative_margin
            )
        return found

    def get_config_dict(self) -> dict[str, Any]:
        """Settings, for the model card."""
        return {
            **super().get_config_dict(),
            "teacher_temperature": self.teacher_temperature,
            "kl_weight": self.kl_weight,
            "contrastive_weight": self.contrastive_weight,
            "false_negative_margin": self.false_negative_margin,
        }
