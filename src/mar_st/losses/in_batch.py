"""Base class of losses over the scores between all queries and all documents of a batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Router
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from mar_st.losses.columns import embed_columns
from mar_st.losses.passes import Cached, PassesMixin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sentence_transformers import SentenceTransformer

#: Scores that are held at once; 64 MB of float32, several times that with their gradients.
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
        targets: Result of `InBatchLoss.targets` for the labels.
    """

    rows: Tensor
    world: int
    scale: Tensor
    targets: Any = None


@dataclass
class _Batch(Cached):
    """Data of a cached forward pass besides the vectors that get gradients."""

    frozen: dict[int, Tensor] = field(default_factory=dict)
    stored: list[Tensor] = field(default_factory=list)
    scale_gradient: Tensor | None = None


class InBatchLoss(PassesMixin, nn.Module, ABC):
    """Base of losses over the score matrix of a batch.

    It embeds the columns, gathers vectors from the other processes, cuts them to the Matryoshka dimensions
    and computes the score matrix a few rows at a time, so that its memory does not grow with the square of
    the batch. A subclass defines the loss of some rows (`parts`).

    With `mini_batch_size` or `mini_batch_tokens` the columns are encoded with GradCache
    (sentence-transformers' `CachedLossMixin`; a column whose encoder is frozen is encoded once, not twice),
    else all at once. Both give the same gradients.

    With `gather_across_devices` each process scores its own queries against the documents of all; gradients
    flow back to the process that a vector came from. The *mean* over processes of the gradients of the
    parameters, which data-parallel training takes, is then the gradient of the whole batch.

    Args:
        model: The model.
        temperature: tau; its initial value if it is learnt.
        learnable_temperature: Learn `log(1 / tau)`; tau is kept between 1/1000 and 1.
        dims: Matryoshka dimensions; the loss is the mean over them. Empty: the full width.
        gather_across_devices: Score against the documents of the other processes too.
        mini_batch_size: Rows of a column that are encoded at a time. `None`: all at once.
        mini_batch_tokens: Tokens of a column, padding included, that are encoded at a time.

    Raises:
        ValueError: The model's similarity is neither the cosine nor the dot product.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float,
        learnable_temperature: bool = False,
        dims: Sequence[int] = (),
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        mini_batch_tokens: int | None = None,
    ) -> None:
        super().__init__()
        if model.similarity_fn_name not in ("cosine", "dot"):
            raise ValueError(
                f"The model scores by {model.similarity_fn_name}; cosine and dot product can be trained."
            )
        self.model = model
        self.normalised = model.similarity_fn_name == "cosine"
        self.learnable_temperature = learnable_temperature
        self.dims = tuple(sorted(dims, reverse=True))
        self.gather_across_devices = gather_across_devices
        self.set_passes(mini_batch_size, mini_batch_tokens)
        self.last_parts: dict[str, Tensor] = {}
        log_scale = torch.tensor(-math.log(temperature), device=model.device)
        if learnable_temperature:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale, persistent=False)

    # -- what a subclass defines --

    @abstractmethod
    def parts(self, queries: Tensor, documents: Tensor, scope: Scope) -> dict[str, Tensor]:
        """Return the parts of the loss of some rows, each *summed* over them; the loss averages their sum.

        Args:
            queries: Vectors of all queries, `(world, dim)` float32, of length 1 if the model's similarity
                is the cosine.
            documents: Vectors of all documents, `(blocks * world, dim)`, in the same form.
            scope: The rows, and further inputs.
        """

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

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of one batch; its parts are in `last_parts` afterwards.

        A single text column holds the queries: the document vectors are then read from the labels.

        Raises:
            ValueError: There is one text column, and the labels are not vectors of its rows' texts.
        """
        features = list(sentence_features)
        stored = _stored_documents(labels) if len(features) == 1 else []
        if self.learnable_temperature:
            with torch.no_grad():
                self.log_scale.clamp_(0.0, math.log(MAX_SCALE))
        if not self.uses_gradient_cache:
            embedded = embed_columns(self.model, features)
            return self.compute_loss_from_embeddings([*embedded, *_cut(stored, embedded[0].shape[1])], labels)
        trained = [feature for feature in features if _is_trained(self.model, feature)]
        batch = _Batch(labels, self.orders_of(trained or features), stored=stored)
        if trained:  # without any there is no backward pass that could encode a second time
            batch.frozen = {
                index: self._embed_frozen(feature)
                for index, feature in enumerate(features)
                if all(feature is not other for other in trained)
            }
        loss: Tensor = self.forward_cached(trained or features, batch)  # type: ignore[arg-type]
        if batch.scale_gradient is not None:
            loss = attach(loss, {0: batch.scale_gradient}, [self.log_scale])
        return loss

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None) -> Tensor:
        """Return the loss from the vectors of the columns, each `(rows, width)`: queries, positives, ..."""
        wanted = [vectors.requires_grad and torch.is_grad_enabled() for vectors in embeddings]
        loss, gradients, of_scale = self._evaluate([v.detach() for v in embeddings], labels, wanted)
        loss = attach(loss, gradients, embeddings)
        return loss if of_scale is None else attach(loss, {0: of_scale}, [self.log_scale])

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss from mini-batch vectors (GradCache); `with_backward` also gives them gradients."""
        batch: _Batch = labels
        places = [i for i in range(len(reps) + len(batch.frozen)) if i not in batch.frozen]
        columns = dict(batch.frozen)
        columns |= enumerate(_cut(batch.stored, reps[0][0].shape[1]), 1)
        columns |= {
            place: vectors.detach() for place, vectors in zip(places, batch.joined(reps), strict=True)
        }
        wanted = [with_backward and index in places for index in range(len(columns))]
        ordered = [columns[index] for index in range(len(columns))]
        loss, gradients, batch.scale_gradient = self._evaluate(ordered, batch.labels, wanted)
        if with_backward:
            for place, parts, order in zip(places, reps, batch.orders, strict=True):
                whole = gradients[place] if order is None else gradients[place][order]
                cut = torch.split(whole, [len(part) for part in parts])
                for part, gradient in zip(parts, cut, strict=True):
                    part.grad = gradient.to(part.dtype)
        return loss

    # -- how it is computed --

    def _embed_frozen(self, features: dict[str, Tensor]) -> Tensor:
        passes = [vectors for vectors, _ in self.embed_minibatch_iter(features, False, False)]
        return Cached(None, self.orders_of([features])).joined([passes])[0]

    def _evaluate(
        self, columns: Sequence[Tensor], labels: Tensor | None, wanted: Sequence[bool]
    ) -> tuple[Tensor, dict[int, Tensor], Tensor | None]:
        """Return the loss, its gradients by wanted column, and that of `log_scale` if it is learnt."""
        learns = self.learnable_temperature and torch.is_grad_enabled()
        with torch.autocast(columns[0].device.type, enabled=False), torch.enable_grad():
            dtype = torch.promote_types(columns[0].dtype, torch.float32)
            whole = self.gathered(torch.stack([column.to(dtype) for column in columns], dim=1))
            queries, documents = whole[:, 0].contiguous(), blocks(whole[:, 1:])
            queries.requires_grad_(wanted[0])
            documents.requires_grad_(any(wanted[1:]))
            log_scale = self.log_scale.detach().to(dtype).requires_grad_(learns)
            targets = self.targets(labels, len(columns))
            parts: dict[str, Tensor] = {}
            for dim in self.dims or (whole.shape[-1],):
                self._add_dim(parts, queries, documents, log_scale, targets, dim, len(columns[0]))
        self.last_parts = parts if len(parts) > 1 else {}
        loss = torch.stack(list(parts.values())).sum()
        return loss, self._returned(queries, documents, wanted), log_scale.grad

    def _add_dim(
        self,
        parts: dict[str, Tensor],
        queries: Tensor,
        documents: Tensor,
        log_scale: Tensor,
        targets: Any,
        dim: int,
        rows: int,
    ) -> None:
        """Add the parts at one dimension, and the gradients of their inputs."""
        cut = [self._prefix(vectors, dim) for vectors in (queries, documents)]
        # The truncated vectors accumulate the gradients of all scores, which are then backpropagated once.
        leaves = [vectors.detach().requires_grad_(vectors.requires_grad) for vectors in cut]
        first = torch.distributed.get_rank() * rows if self._is_gathering() else 0
        own = torch.arange(first, first + rows, device=queries.device)
        share = 1 / (rows * max(len(self.dims), 1))
        for chunk in torch.split(own, max(1, MAX_SCORES // len(documents))):
            scope = Scope(chunk, len(queries), log_scale.exp(), targets)
            scaled = {name: part * share for name, part in self.parts(leaves[0], leaves[1], scope).items()}
            total = torch.stack(list(scaled.values())).sum()
            if total.requires_grad:
                total.backward()  # type: ignore[no-untyped-call]
            for name, part in scaled.items():
                label = f"{name}_{dim}" if len(self.dims) > 1 else name
                parts[label] = parts.get(label, 0.0) + part.detach()
        for vectors, leaf in zip(cut, leaves, strict=True):
            if leaf.grad is not None:
                vectors.backward(leaf.grad)  # type: ignore[no-untyped-call]

    def _prefix(self, vectors: Tensor, dim: int) -> Tensor:
        if dim > vectors.shape[1]:
            raise ValueError(f"dims ask for {dim} dimensions; the vectors have {vectors.shape[1]}.")
        vectors = vectors[:, :dim]
        return normalize(vectors, dim=1) if self.normalised else vectors

    def _is_gathering(self) -> bool:
        distributed = torch.distributed
        return self.gather_across_devices and distributed.is_available() and distributed.is_initialized()

    def gathered(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, concatenated, `(world * rows, ...)`; without gradient."""
        if not self._is_gathering():
            return tensor
        per_process = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(per_process, tensor.contiguous())
        return torch.cat(per_process)

    def _returned(self, queries: Tensor, documents: Tensor, wanted: Sequence[bool]) -> dict[int, Tensor]:
        """Return the gradients of this process's vectors by column, summed over all processes."""
        pieces: dict[int, Tensor] = {}
        if queries.grad is not None:
            pieces[0] = queries.grad
        if documents.grad is not None:
            pieces |= enumerate(torch.split(documents.grad, len(queries)), 1)
        pieces = {index: piece for index, piece in pieces.items() if wanted[index]}
        if not pieces or not self._is_gathering():
            return pieces
        stacked = torch.stack(list(pieces.values()))
        torch.distributed.all_reduce(stacked)
        world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        own = stacked.chunk(world, dim=1)[rank]
        return dict(zip(pieces, own, strict=True))


class _Attach(torch.autograd.Function):
    """A value whose gradients are already known; autograd scales and propagates them."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        del tensors
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, ...]:
        (scale,) = outputs
        return (scale, None, *(scale.to(gradient.dtype) * gradient for gradient in ctx.gradients))


def attach(value: Tensor, gradients: dict[int, Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """Return `value` with the gradients of some tensors attached, as part of the autograd graph.

    Args:
        value: A value that does not need gradients, such as a loss.
        gradients: Gradients of the value, by index into `tensors`.
        tensors: Tensors that the gradients belong to.
    """
    if not gradients:
        return value
    chosen = [tensors[index] for index in gradients]
    own = [gradient.to(tensor.dtype) for gradient, tensor in zip(gradients.values(), chosen, strict=True)]
    attached: Tensor = _Attach.apply(value, own, *chosen)  # type: ignore[no-untyped-call]
    return attached


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


def _stored_documents(labels: Tensor | None) -> list[Tensor]:
    """Return the document vectors, `(rows, width)` per column, of labels that begin with the query vector."""
    if labels is None or labels.ndim != 3:
        raise ValueError(
            "The loss takes the columns query, positive and any number of negatives; or queries alone, and "
            "as labels the stored vectors of each row's query and documents, (batch, 1 + documents, width)."
        )
    return list(labels[:, 1:].unbind(1))


def _cut(stored: Sequence[Tensor], width: int) -> list[Tensor]:
    """Cut stored vectors to the width of the shared space; `InBatchLoss` normalises them like any prefix."""
    return [vectors[:, :width] for vectors in stored]


def _is_trained(model: Any, features: dict[str, Any]) -> bool:
    """Return True if the encoder of a column has trainable parameters."""
    while not isinstance(model, BaseModel):  # wrapped: compiled, or for several devices
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None:
            return True
        model = inner
    for module in model.children():
        chain: Iterable[nn.Module] = [module]
        if isinstance(module, Router):
            router: Any = module
            chain = router.sub_modules[router._resolve_route(features.get("task"), features.get("modality"))]
        if any(parameter.requires_grad for part in chain for parameter in part.parameters()):
            return True
    return False
