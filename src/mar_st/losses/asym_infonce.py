"""Asym-InfoNCE: the contrastive loss between the query encoder and the document encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.checkpoint import checkpoint

from mar_st.losses.columns import PassesMixin
from mar_st.modules.arrangement import check_similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sentence_transformers import SentenceTransformer

#: Scores that are held at once; 64 MB of float32, several times that with their gradients. More are computed
#: again in the backward pass.
MAX_SCORES = 2**24

#: Largest 1 / tau of a learnt temperature, as in CLIP.
MAX_SCALE = 1000.0


@dataclass
class Scope:
    """Inputs of a part of a loss besides its scores.

    Attributes:
        rows: Indices of the queries of this part, `(n,)` int64; the positive of query `i` is document `i`.
        world: Rows of the batch over all processes. Documents come in blocks of this size: positives, first
            negatives, and so on, so document `j` belongs to row `j % world`.
        scale: 1 / tau.
        targets: Result of `AsymInfoNCELoss.targets` for the labels.
    """

    rows: Tensor
    world: int
    scale: Tensor
    targets: Any = None


class AsymInfoNCELoss(PassesMixin, nn.Module):
    """InfoNCE over the two routes of a MAR (MAR paper, Stage II), or over the one encoder of any other model.

    With `s_ij = sim(E_Q(q_i), E_D(d_j))`, the documents `j` of the whole batch (positives and hard negatives)
    and `i+` the positive of query `i`:

        L = mean_i -log( exp(s_ii+ / tau) / sum_j exp(s_ij / tau) )

    With `both_directions` it is the mean of this and of the reverse direction, in which each positive ranks
    the queries. With `dims` it is the mean over Matryoshka prefixes,
    `L = (1/|M|) * sum_m L(first m dimensions)`. The similarity is the model's own: either the cosine, with
    each prefix renormalised, or the dot product of the unchanged vectors and prefixes (the released form of
    MAR, BMRetriever).

    The score matrix is computed a few rows at a time, so that its memory does not grow with the square of the
    batch. With `gather_across_devices` each process scores its own queries against the documents of all;
    gradients flow back to the process that a vector came from. The *mean* over processes of the gradients of
    the parameters, which data-parallel training takes, is then the gradient of the whole batch.

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

    Raises:
        MarError: The model's similarity is neither the cosine nor the dot product.

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
        super().__init__()
        check_similarity(model, "The model")
        self.model = model
        self.normalised = model.similarity_fn_name == "cosine"
        self.learnable_temperature = learnable_temperature
        self.dims = tuple(sorted(dims, reverse=True))
        self.both_directions = both_directions
        self.false_negative_margin = false_negative_margin
        self.gather_across_devices = gather_across_devices
        self.set_passes(mini_batch_size, mini_batch_tokens)
        self.last_parts: dict[str, Tensor] = {}
        log_scale = torch.tensor(-math.log(temperature), device=model.device)
        if learnable_temperature:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale, persistent=False)

    # -- what a subclass may define --

    def parts(self, queries: Tensor, documents: Tensor, scope: Scope) -> dict[str, Tensor]:
        """Return the parts of the loss of some rows, each *summed* over them; the loss averages their sum.

        Args:
            queries: Vectors of all queries, `(world, dim)` float32, of length 1 if the model's similarity
                is the cosine.
            documents: Vectors of all documents, `(blocks * world, dim)`, in the same form.
            scope: The rows, and further inputs.
        """
        return {"dim": self.contrastive(queries[scope.rows] @ documents.T, queries, documents, scope)}

    def contrastive(self, scores: Tensor, queries: Tensor, documents: Tensor, scope: Scope) -> Tensor:
        """Return the InfoNCE of some rows, summed over them; with both directions, the mean of the two.

        Args:
            scores: Scores of the rows, `(rows, blocks * world)`.
            queries: Vectors of all queries.
            documents: Vectors of all documents, positives first.
            scope: The rows, and tau.
        """
        loss = infonce(scores, scope, self.false_negative_margin)
        if not self.both_directions:
            return loss
        reverse = documents[scope.rows] @ queries.T
        return (loss + infonce(reverse, scope, self.false_negative_margin)) / 2

    def targets(self, labels: Tensor | None, columns: int) -> Any:
        """Turn the labels of this process into the targets that `parts` uses; by default labels are ignored.

        Args:
            labels: The label column of the batch.
            columns: Number of text columns.
        """
        del labels, columns

    # -- what the trainer calls --

    @property
    def temperature(self) -> float:
        """Return the current value of tau."""
        return float(torch.exp(-self.log_scale.detach()))

    def own_parameters(self) -> list[Tensor]:
        """Return the learnt temperature, if there is one."""
        return [self.log_scale] if self.learnable_temperature else []

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of one batch; its parts are in `last_parts` afterwards.

        A single text column holds the queries: the document vectors are then read from the labels.

        Raises:
            ValueError: There is one text column, and the labels are not vectors of its rows' texts.
        """
        if self.learnable_temperature:
            with torch.no_grad():
                self.log_scale.clamp_(0.0, math.log(MAX_SCALE))
        return super().forward(sentence_features, labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None) -> Tensor:
        """Return the loss from the vectors of the columns, each `(rows, width)`: queries, positives, ..."""
        rows, width = embeddings[0].shape
        columns = [*embeddings] if len(embeddings) > 1 else [*embeddings, *_stored_documents(labels, width)]
        parts: dict[str, Tensor] = {}
        with torch.autocast(columns[0].device.type, enabled=False):
            dtype = torch.promote_types(columns[0].dtype, torch.float32)
            whole = self.gathered(torch.stack([column.to(dtype) for column in columns], dim=1))
            targets = self.targets(labels, len(columns))
            for dim in self.dims or (width,):
                for name, part in self._of_dim(whole, targets, dim, rows).items():
                    parts[f"{name}_{dim}" if len(self.dims) > 1 else name] = part
            loss = torch.stack(list(parts.values())).sum()
        self.last_parts = {name: part.detach() for name, part in parts.items()} if len(parts) > 1 else {}
        return loss

    # -- how it is computed --

    def _of_dim(self, whole: Tensor, targets: Any, dim: int, rows: int) -> dict[str, Tensor]:
        """Return the parts of the loss at one dimension, as shares of the mean over rows and dimensions."""
        if dim > whole.shape[-1]:
            raise ValueError(f"dims ask for {dim} dimensions; the vectors have {whole.shape[-1]}.")
        vectors = normalize(whole[..., :dim], dim=-1) if self.normalised else whole[..., :dim]
        queries, documents = vectors[:, 0].contiguous(), blocks(vectors[:, 1:])
        first = torch.distributed.get_rank() * rows if self._is_gathering() else 0
        own = torch.arange(first, first + rows, device=whole.device)
        chunks = torch.split(own, max(1, MAX_SCORES // len(documents)))
        score: Callable[..., dict[str, Tensor]] = self._of_rows
        if len(chunks) > 1 or len(self.dims) > 1:
            score = partial(checkpoint, self._of_rows, use_reentrant=False, preserve_rng_state=False)
        parts: dict[str, Tensor] = {}
        for chunk in chunks:
            for name, part in score(queries, documents, chunk, targets).items():
                parts[name] = parts.get(name, 0.0) + part / (rows * max(len(self.dims), 1))
        return parts

    def _of_rows(self, queries: Tensor, documents: Tensor, rows: Tensor, targets: Any) -> dict[str, Tensor]:
        return self.parts(queries, documents, Scope(rows, len(queries), self.log_scale.exp(), targets))

    def _is_gathering(self) -> bool:
        distributed = torch.distributed
        return self.gather_across_devices and distributed.is_available() and distributed.is_initialized()

    def gathered(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, concatenated, `(world * rows, ...)`."""
        gathered: Tensor = _Gather.apply(tensor) if self._is_gathering() else tensor  # type: ignore[no-untyped-call]
        return gathered


class _Gather(torch.autograd.Function):
    """The tensors of all processes; a gradient is summed over the processes and goes back to its own."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        del ctx
        per_process = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(per_process, tensor.contiguous())
        return torch.cat(per_process)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Tensor:
        del ctx
        gradient: Tensor = outputs[0].clone()
        torch.distributed.all_reduce(gradient)
        return gradient.chunk(torch.distributed.get_world_size())[torch.distributed.get_rank()]


def blocks(columns: Tensor) -> Tensor:
    """Reshape `(rows, columns, dim)` to `(columns * rows, dim)`, column after column."""
    return columns.transpose(0, 1).flatten(0, 1).contiguous()


def infonce(scores: Tensor, scope: Scope, margin: float | None = None) -> Tensor:
    """Return the InfoNCE of some rows, summed over them.

    Args:
        scores: Scores of the rows, not divided by tau, `(rows, blocks * world)`.
        scope: The rows, and tau.
        margin: Leave out texts of other rows that score more than this above the row's own positive.
    """
    logits = scores * scope.scale
    if margin is not None:
        detached, order = scores.detach(), torch.arange(len(scores), device=scores.device)
        limit = detached[order, scope.rows] + margin
        excluded = detached > limit[:, None]
        excluded.view(len(scores), -1, scope.world)[order, :, scope.rows] = False
        # After the scaling: minus infinity times a zero gradient would make the gradient of tau NaN.
        logits = logits.masked_fill(excluded, -torch.inf)
    return cross_entropy(logits, scope.rows, reduction="sum")


def _stored_documents(labels: Tensor | None, width: int) -> Sequence[Tensor]:
    """Return the document vectors per column, `(rows, width)`, of labels that begin with the query vector."""
    if labels is None or labels.ndim != 3:
        raise ValueError(
            "The loss takes the columns query, positive and any number of negatives; or queries alone, and "
            "as labels the stored vectors of each row's query and documents, (batch, 1 + documents, width)."
        )
    return labels[:, 1:, :width].unbind(1)
