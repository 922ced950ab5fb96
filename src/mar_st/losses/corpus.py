"""Training a query encoder against all documents of a frozen space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

from mar_st.losses.columns import PassesMixin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer


class CorpusLoss(PassesMixin, nn.Module):
    """Teaches a query encoder to find the documents of labelled queries among all documents.

    With the vectors `s_i` of the query encoder and `t_i` of the teacher for query `i`, the stored vectors
    `d_j` of all documents, and the documents `P_i` that answer the query,

        L = mean_i [ -1/|P_i| sum_{j in P_i} log q_ij + sum_j p_ij log(p_ij / q_ij) ],
        q_i = softmax_j(s_i.d_j / tau),   p_i = softmax_j(t_i.d_j / tau)

    The first part is the InfoNCE of Stage II (MAR paper) with frozen documents, over the whole collection
    instead of a batch; the second keeps what the teacher ranks high. A step encodes only queries. It holds
    a few arrays of `(batch, documents)` float32.

    Args:
        model: The model that holds the query encoder; it gives vectors of length 1.
        queries: The teacher's vectors of the distinct queries, `(queries, dim)`.
        documents: Vectors of the distinct documents, `(documents, dim)`.
        answers: Numbers of the documents that answer each query, `(queries, most)` int64; -1 fills rows.
        temperature: tau.

    Requirements:
        1. One text column, the queries.
        2. A `label` column with the number of each query, a row of `queries` and `answers`.

    Inputs:
        | columns | labels                        |
        |---------|-------------------------------|
        | (query) | numbers of queries `(batch,)` |

    Relations:
        - `AsymInfoNCELoss` has the documents of the batch as candidates, and can train both encoders.
        - `AlignmentLoss` needs no labels.
    """

    queries: Tensor
    documents: Tensor
    answers: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        queries: Tensor,
        documents: Tensor,
        answers: Tensor,
        temperature: float = 0.02,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        for name, tensor in (("queries", queries), ("documents", documents), ("answers", answers)):
            self.register_buffer(name, tensor.to(model.device), persistent=False)
        self.set_passes(None, None)
        self.last_parts: dict[str, Tensor] = {}

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss from the vectors of the queries, `(batch, dim)`, computed in float32."""
        with torch.autocast(embeddings[0].device.type, enabled=False):
            scores = log_softmax(embeddings[0].float() @ self.documents.T / self.temperature, dim=1)
            taught = log_softmax(self.queries[labels] @ self.documents.T / self.temperature, dim=1)
            answers = self.answers[labels]
            known = answers >= 0
            found = scores.gather(1, answers.clamp_min(0)) * known
            contrastive = -(found.sum(dim=1) / known.sum(dim=1)).mean()
            kl = kl_div(scores, taught, reduction="batchmean", log_target=True)
        self.last_parts = {"contrastive": contrastive.detach(), "kl": kl.detach()}
        return contrastive + kl
