"""Score distillation: a student learns how a teacher ranks documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch.nn.functional import kl_div, log_softmax

from mar_st.losses.asym_infonce import AsymInfoNCELoss, Scope, blocks

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

KLScope: TypeAlias = Literal["group", "batch"]


class ScoreDistillLoss(AsymInfoNCELoss):
    """KL between the scores of teacher and student, and InfoNCE (RocketQAv2; `kl_div` of FlagEmbedding).

    With the student's scores `s_ij` and the teacher's `t_ij` of query `i` and document `j`:

        L = w_k * mean_i KL( softmax_j(t_ij / T) || softmax_j(s_ij / tau) ),       j in the scope of i
          + w_c * mean_i -log( exp(s_ii+ / tau) / sum_j exp(s_ij / tau) ),          j in the batch

    The scope of the KL is the group of the query, its own positive and hard negatives, as published; or the
    documents of the whole batch, which needs no hard negatives.

    With `dims` it is the mean over Matryoshka prefixes of the student, and with `both_directions` the InfoNCE
    part is that of `AsymInfoNCELoss`.

    The teacher's output is computed once and given as labels, so a step runs only the student. It is either
    vectors, whose width may differ from the student's as only scores are compared, or scores of the group.

    Args:
        model: The student, a symmetric model or a MAR.
        temperature: tau.
        teacher_temperature: T; default tau.
        kl_weight: `w_k`.
        contrastive_weight: `w_c`.
        kl_scope: `group` or `batch`.
        **options: Further options of `AsymInfoNCELoss`. A `false_negative_margin` leaves documents out of the
            *contrastive* part only; the KL keeps them, as the teacher scores them.

    Requirements:
        1. Columns `query`, `positive`, then any number of negatives, in this order.
        2. At least one negative for the scope `group`.
        3. A `label` column with the teacher's vectors of a row's texts in the order of the columns. Their dot
           product is the teacher's score, so they have length 1 for a teacher that scores by cosine. Or, for
           the scope `group`, its scores of the query with each of the row's documents (a cross-encoder).

    Inputs:
        | columns                                | labels                                            |
        |----------------------------------------|---------------------------------------------------|
        | (query, positive, negative_1, ..., _n) | teacher vectors `(batch, 2 + n, width)`           |
        | (query, positive, negative_1, ..., _n) | teacher scores `(batch, 1 + n)`                   |

    Relations:
        - `DistillKLDivLoss` takes scores of each query's own candidates, too, and has no contrastive part.
        - `AsymInfoNCELoss` is the contrastive part.
        - `AlignmentLoss` learns vectors instead of scores; widths must then agree.

    Example:
        ```python
        columns = ["query", "positive", "negative_1"]
        vectors = [teacher.encode(triples[name], normalize_embeddings=True) for name in columns]
        data = triples.add_column("label", list(numpy.stack(vectors, axis=1).tolist()))
        loss = ScoreDistillLoss(student, temperature=0.02)
        SentenceTransformerTrainer(model=student, args=args, train_dataset=data, loss=loss).train()
        ```
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.02,
        teacher_temperature: float | None = None,
        kl_weight: float = 1.0,
        contrastive_weight: float = 1.0,
        kl_scope: KLScope = "group",
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        self.teacher_temperature = teacher_temperature or temperature
        self.kl_weight, self.contrastive_weight = kl_weight, contrastive_weight
        self.kl_scope: KLScope = kl_scope

    def targets(self, labels: Tensor | None, columns: int) -> Any:
        """Return the teacher's scores of each query with its documents, or, for `batch`, its vectors.

        Raises:
            ValueError: The labels are missing, or do not fit the columns.
        """
        shape = () if labels is None else tuple(labels.shape[1:])
        if labels is None or (shape[:-1] != (columns,) and shape != (columns - 1,)):
            raise ValueError(
                f"ScoreDistillLoss needs the teacher's vectors of the {columns} texts of each row as labels, "
                f"(batch, {columns}, width), or its scores of the documents, (batch, {columns - 1}); got "
                f"{'none' if labels is None else tuple(labels.shape)}."
            )
        whole = self.gathered(labels.detach().to(self.log_scale.device).float())
        if len(shape) == 1:
            return whole
        if self.kl_scope == "group":
            return torch.einsum("nd,nbd->nb", whole[:, 0], whole[:, 1:])
        return whole[:, 0], blocks(whole[:, 1:])

    def parts(self, queries: Tensor, documents: Tensor, scope: Scope) -> dict[str, Tensor]:
        """Return both parts of some rows, weighted and summed over them."""
        whole = self.contrastive_weight or self.kl_scope == "batch"
        scores = queries[scope.rows] @ documents.T if whole else None
        terms = {}
        if self.kl_weight:
            divergence = kl_div(
                log_softmax(self._students(queries, documents, scores, scope) * scope.scale, dim=1),
                log_softmax(self._teachers(scope) / self.teacher_temperature, dim=1).to(queries.dtype),
                reduction="sum",
                log_target=True,
            )
            terms["kl"] = self.kl_weight * divergence
        if self.contrastive_weight:
            terms["contrastive"] = self.contrastive_weight * self.contrastive(
                scores,  # type: ignore[arg-type] # computed for this weight
                queries,
                documents,
                scope,
            )
        return terms

    def _students(self, queries: Tensor, documents: Tensor, scores: Tensor | None, scope: Scope) -> Tensor:
        """Return the scores of the rows within the scope of the KL."""
        if scores is None:
            own = documents.view(-1, scope.world, documents.shape[1])[:, scope.rows]
            return torch.einsum("nd,bnd->nb", queries[scope.rows], own)
        if self.kl_scope == "batch":
            return scores
        order = torch.arange(len(scores), device=scores.device)
        return scores.view(len(scores), -1, scope.world)[order, :, scope.rows]

    def _teachers(self, scope: Scope) -> Tensor:
        if self.kl_scope == "group":
            scores: Tensor = scope.targets[scope.rows]
            return scores
        queries, documents = scope.targets
        whole: Tensor = queries[scope.rows] @ documents.T
        return whole
