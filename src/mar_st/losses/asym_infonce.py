"""Asym-InfoNCE: the contrastive loss between the query encoder and the document encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.losses.in_batch import InBatchLoss, Scope, infonce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor


class AsymInfoNCELoss(InBatchLoss):
    """InfoNCE over the two routes of a MAR (MAR paper, Stage II), or over the one encoder of any other model.

    With `s_ij = sim(E_Q(q_i), E_D(d_j))`, the documents `j` of the whole batch (positives and hard negatives)
    and `i+` the positive of query `i`:

        L = mean_i -log( exp(s_ii+ / tau) / sum_j exp(s_ij / tau) )

    With `both_directions` it is the mean of this and of the reverse direction, in which each positive ranks
    the queries. With `dims` it is the mean over Matryoshka prefixes,
    `L = (1/|M|) * sum_m L(first m dimensions)`. The similarity is the model's own: either the cosine, with
    each prefix renormalised, or the dot product of the unchanged vectors and prefixes (the released form of
    MAR, BMRetriever).

    Args:
        model: The MAR, or any model whose `router_mapping` sends the columns to its routes; symmetric models
            work too.
        temperature: tau; its initial value if it is learnt.
        learnable_temperature: Learn `log(1 / tau)`; tau is kept between 1/1000 and 1.
        dims: Matryoshka dimensions; empty means only the full width.
        both_directions: Also rank the queries for each positive.
        false_negative_margin: Leave out documents of *other* rows that score more than this above the row's
            own positive, at the same dimension: they are probably unlabelled positives (in the reverse
            direction: queries). `None` keeps all.
        gather_across_devices: Also use the documents of the other processes as negatives.
        mini_batch_size: Rows of a column that are encoded at a time (GradCache); the gradients stay the
            same. `None`: all at once.
        mini_batch_tokens: Tokens encoded at a time, padding included: passes of short texts hold more texts.

    Requirements:
        1. Columns `query`, `positive`, then any number of negatives, in this order.
        2. A `router_mapping` from these columns to `query` / `document` for an asymmetric model.

    Inputs:
        | columns                                     | labels |
        |---------------------------------------------|--------|
        | (query, positive) texts                     | none   |
        | (query, positive, negative_1, ..., _n)      | none   |
        | (query), with stored documents              | vectors `(batch, 2 + n, dim)` |

    Relations:
        - `MultipleNegativesRankingLoss` and its `Cached` form have the same value and gradients for a fixed
          temperature and no margin (tested); this class adds the learnable temperature, the margin and the
          model's own similarity.
        - `MatryoshkaLoss` around them has the same value and gradients (tested). It normalises vectors of
          models that do not, and around a gradient-caching loss it does not weight the gradient of a learnt
          temperature; `dims` handle both correctly, and gather vectors once for all dimensions.
        - `AlignmentLoss` pairs a text with its own vector and needs no labelled pairs.
        - `ScoreDistillLoss` adds the scores of a teacher.

    Example:
        ```python
        loss = AsymInfoNCELoss(mar, temperature=0.02)
        SentenceTransformerTrainer(model=mar, args=args, train_dataset=triples, loss=loss).train()
        ```
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.02,
        learnable_temperature: bool = False,
        dims: Sequence[int] = (),
        both_directions: bool = False,
        false_negative_margin: float | None = None,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_tokens: int | None = None,
    ) -> None:
        super().__init__(
            model,
            temperature=temperature,
            learnable_temperature=learnable_temperature,
            dims=dims,
            gather_across_devices=gather_across_devices,
            mini_batch_size=mini_batch_size,
            mini_batch_tokens=mini_batch_tokens,
        )
        self.both_directions = both_directions
        self.false_negative_margin = false_negative_margin

    def parts(self, queries: Tensor, documents: Tensor, scope: Scope) -> dict[str, Tensor]:
        """Return the InfoNCE of some rows, summed over them."""
        loss = both_infonce(
            queries[scope.rows] @ documents.T,
            queries,
            documents,
            scope,
            both_directions=self.both_directions,
            margin=self.false_negative_margin,
        )
        return {"dim": loss}


def both_infonce(
    scores: Tensor,
    queries: Tensor,
    documents: Tensor,
    scope: Scope,
    *,
    both_directions: bool,
    margin: float | None,
) -> Tensor:
    """Return the InfoNCE of some rows, summed over them; with both directions, the mean of the two.

    Args:
        scores: Scores of the rows, `(rows, blocks * world)`.
        queries: Vectors of all queries.
        documents: Vectors of all documents, positives first.
        scope: The rows, and tau.
        both_directions: Also rank the queries for each positive.
        margin: See `infonce`.
    """
    loss = infonce(scores, scope, margin)
    if not both_directions:
        return loss
    return (loss + infonce(documents[scope.rows] @ queries.T, scope, margin)) / 2
