"""Embeddings for an encoder that keeps the last layers of another: mean hidden states replace its own.

An encoder that is cut to its last layers feeds them token embeddings, but these layers were trained on the
outputs of the layers below. Here each token's embedding becomes the mean of its hidden states, over the texts
that it occurs in, at the input of the first layer that is kept (one vector per token, pooled over contexts,
as the static embeddings of Bommasani et al., ACL 2020; here the remaining layers read them). The cut encoder
then starts near the whole one, before any training; docs/studies/e5.md has figures.

Two kinds of embeddings are supported: those of the BERT family (BERT, RoBERTa, XLM-R, GTE), which are
normalised, and those of decoders such as Qwen3 and Llama, which are not.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.model.encoders import layer_stack
from mar_st.recipes.rules import CONTEXT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sentence_transformers.sentence_transformer.modules import Transformer

#: Maximum tokens of a forward pass, with padding.
PASS = 8_192

#: Number of occurrences that the guess for a token counts as; the guess for positions is zero.
PRIOR = 1.0

#: Alternations of the fit between token and position vectors.
SWEEPS = 4

#: Share of the mean diagonal that the regression of the guesses adds to it.
RIDGE = 1e-3


class ContextMeansError(MarError):
    """An encoder whose embeddings cannot be replaced by mean hidden states; the message says why."""


class _Enough(Exception):  # noqa: N818 -- ends a forward pass early, not an error
    """Raised when all hidden states that are wanted have been seen."""


@dataclass
class _Embeddings:
    """The modules that compute an encoder's hidden states before its first layer.

    Attributes:
        word: Table of token embeddings.
        norm: Layer normalisation after the sum; `None` for decoders.
        positions: Table of position embeddings, if any.
        first: Row of the first position.
        types: Table of token types, if any.
    """

    word: nn.Embedding
    norm: nn.LayerNorm | None = None
    positions: nn.Embedding | None = None
    first: int = 0
    types: nn.Embedding | None = None

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """Return the modules of a model, after a check that they reproduce its hidden states.

        Raises:
            ContextMeansError: The model computes its hidden states in another way.
        """
        home: Any = getattr(model, "embeddings", None)
        word: Any = model.get_input_embeddings()  # type: ignore[operator]
        found = cls(word)
        if isinstance(getattr(home, "LayerNorm", None), nn.LayerNorm):
            found.norm, found.types = home.LayerNorm, getattr(home, "token_type_embeddings", None)
            found.positions = getattr(home, "position_embeddings", None)
            row = getattr(found.positions, "padding_idx", None)
            found.first = 0 if row is None else int(row) + 1
        padding = {getattr(model.config, "pad_token_id", None), found.first - 1}  # it would shift positions
        known = [token for token in range(min(12, word.num_embeddings)) if token not in padding]
        ids = torch.tensor([known], device=word.weight.device)
        (states,) = _states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [0]).values()
        if not torch.allclose(found.output(ids[0]), states[0].float(), atol=1e-2, rtol=1e-2):
            raise ContextMeansError(
                f"{type(model).__name__} makes hidden states of its token embeddings in a way that is not "
                "supported, so mean hidden states cannot replace them. Keep its own embeddings."
            )
        return found

    @torch.inference_mode()
    def output(self, tokens: Tensor, *, positions: bool = True) -> Tensor:
        """Return the hidden states of one text's tokens before the first layer, `(tokens, width)` float32.

        Args:
            tokens: Token ids, `(tokens,)`.
            positions: Use each token's own position; if False, the mean of several positions.
        """
        states = self.word.weight[tokens].float()
        if self.types is not None:
            states = states + self.types.weight[0].float()
        if self.positions is not None:
            table = self.positions.weight[self.first :].float()
            states = states + (table[: len(tokens)] if positions else table[:32].mean(dim=0))
        if self.norm is not None:
            states = nn.functional.layer_norm(
                states, states.shape[-1:], self.norm.weight.float(), self.norm.bias.float(), self.norm.eps
            )
        return states


@dataclass
class HiddenMeans:
    """Sums of an encoder's hidden states by token and by position, at the inputs of some of its layers.

    Attributes:
        tokens: Token of each occurrence, blocks of `(occurrences,)`.
        places: Position of each occurrence in its text, in the same blocks.
        by_token: Layer -> sums, `(vocabulary, width)` float32.
        by_place: Layer -> sums, `(positions, width)` float32.
        norms: Layer -> normalisation whose output it reads; empty for decoders.
    """

    tokens: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)
    by_token: dict[int, Tensor] = field(default_factory=dict)
    by_place: dict[int, Tensor] = field(default_factory=dict)
    norms: dict[int, nn.LayerNorm] = field(default_factory=dict)

    @classmethod
    @torch.inference_mode()
    def of(
        cls,
        transformer: Transformer,
        layers: Iterable[int],
        texts: Sequence[str],
        *,
        max_length: int | None = None,
        show_progress: bool = True,
    ) -> Self:
        """Return the sums over texts.

        Args:
            transformer: The whole encoder, on its device; dropout is off.
            layers: Indices of layers whose inputs are summed, from 1.
            texts: Texts as the cut encoder will see them, prompts included; see `sample`.
            max_length: Maximum number of tokens per text; default the encoder's.
            show_progress: Show a progress bar if this takes longer than ten seconds.

        Raises:
            ContextMeansError: There are no texts, or the embeddings are of an unknown kind.
        """
        if not len(texts):
            raise ContextMeansError("Hidden states are averaged over texts; got none.")
        model: Any = transformer.model
        training, wanted = model.training, sorted(set(layers))
        model.eval()
        parts = _Embeddings.of(model)
        shape, limit = parts.word.weight.shape, _longest(transformer, max_length)
        found = cls(
            by_token={layer: torch.zeros(shape, device=model.device) for layer in wanted},
            by_place={layer: torch.zeros(limit, shape[1], device=model.device) for layer in wanted},
            norms={} if parts.norm is None else {layer: _norm_before(model, layer) for layer in wanted},
        )
        own, transformer.max_seq_length = transformer.max_seq_length, limit
        try:
            with tqdm(
                total=len(texts), desc="mean hidden states", unit="texts", delay=10, disable=not show_progress
            ) as bar:
                for features in _passes(transformer, texts, limit):
                    found._add(_states(model, features, wanted), features, skip_first=parts.norm is None)
                    bar.update(len(features["input_ids"]))
        finally:
            transformer.max_seq_length = own
            model.train(training)
        if not sum(map(len, found.tokens)):
            raise ContextMeansError("The texts have no tokens to average over, the first of each left out.")
        return found

    def _add(self, states: dict[int, Tensor], features: dict[str, Tensor], *, skip_first: bool) -> None:
        mask = features["attention_mask"].bool()
        place = (mask.cumsum(dim=1) - 1)[mask]
        # Decoders concentrate attention and large values on the first token of a text, whichever it is.
        kept = place > 0 if skip_first else torch.ones_like(place, dtype=torch.bool)
        token, place = features["input_ids"][mask][kept], place[kept]
        self.tokens.append(token)
        self.places.append(place)
        for layer, state in states.items():
            flat = state[mask][kept].float()
            self.by_token[layer].index_add_(0, token, flat)
            self.by_place[layer].index_add_(0, place, flat)

    @torch.inference_mode()
    def write(self, cut: Transformer, layer: int) -> None:
        """Replace the embeddings of an encoder that starts at one of the layers, in place.

        With `x` the hidden state of an occurrence of token `v` at position `p`, before the scale and shift of
        the last normalisation, the new embeddings `e` and position embeddings `q` minimise the sum of
        `|x - e_v - q_p|^2` over the occurrences. Tokens that do not occur get a guess, a ridge regression of
        the means on the encoder's own embeddings; rare ones are drawn to it. Encoders without position
        embeddings have no `q`.

        Args:
            cut: A copy of the encoder that was averaged, without the layers below `layer`.
            layer: Index of its first layer in the whole encoder.

        Raises:
            ContextMeansError: No hidden states were summed for this layer.
        """
        if layer not in self.by_token:
            raise ContextMeansError(
                f"Hidden states were summed at the inputs of layers {sorted(self.by_token)}; got {layer}."
            )
        target = _Embeddings.of(cut.model)
        norm = self.norms.get(layer)
        tokens, places = torch.cat(self.tokens), torch.cat(self.places)
        rows = len(target.word.weight)
        own = target.output(torch.arange(rows, device=tokens.device), positions=False)
        count = torch.bincount(tokens, minlength=rows).float()
        of_tokens, of_places = self.by_token[layer], self.by_place[layer]
        count_places = torch.bincount(places, minlength=len(of_places)).float()
        if norm is not None:
            of_tokens, of_places = (
                _before(norm, sums, number)
                for sums, number in ((of_tokens, count), (of_places, count_places))
            )
        guess = _guess(own, of_tokens, count)
        means, offsets = guess, torch.zeros_like(of_places)
        if target.positions is None:
            means = (of_tokens + PRIOR * guess) / (count + PRIOR)[:, None]
        else:
            pairs = _Occurrences.of(tokens, places, (rows, len(of_places)))
            for _ in range(SWEEPS):
                means = (of_tokens - pairs.times(offsets) + PRIOR * guess) / (count + PRIOR)[:, None]
                offsets = (of_places - pairs.transposed_times(means)) / (count_places + PRIOR)[:, None]
        target.word.weight.copy_(means)
        if target.types is not None:
            target.types.weight.zero_()
        if target.positions is not None:
            table = target.positions.weight
            table.zero_()
            table[target.first : target.first + len(offsets)] = offsets[: len(table) - target.first].to(table)
        if target.norm is not None and norm is not None:
            target.norm.load_state_dict(norm.state_dict())


def sample(number: int, seed: int) -> list[int]:
    """Return the rows of at most `CONTEXT_TEXTS` texts, drawn with a seed from `number` texts, in order."""
    if number <= CONTEXT_TEXTS:
        return list(range(number))
    return sorted(random.Random(seed).sample(range(number), CONTEXT_TEXTS))


@dataclass(frozen=True)
class _Occurrences:
    """Counts of each token at each position, `(vocabulary, positions)`, sparse."""

    matrix: Tensor
    transposed: Tensor

    @classmethod
    def of(cls, tokens: Tensor, places: Tensor, shape: tuple[int, int]) -> Self:
        ones = torch.ones(len(tokens), device=tokens.device)
        matrix = torch.sparse_coo_tensor(
            torch.stack([tokens, places]), ones, shape, check_invariants=True
        ).coalesce()
        return cls(matrix, matrix.t().coalesce())

    def times(self, places: Tensor) -> Tensor:
        return torch.mm(self.matrix, places)

    def transposed_times(self, tokens: Tensor) -> Tensor:
        return torch.mm(self.transposed, tokens)


def _states(model: Any, features: dict[str, Tensor], layers: Sequence[int]) -> dict[int, Tensor]:
    """Return the inputs of some layers, `(texts, tokens, width)` each; the layers after them do not run."""
    _, stack = layer_stack(model)
    found: dict[int, Tensor] = {}

    def seen(layer: int) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            found[layer] = arguments[0] if arguments else named["hidden_states"]
            if layer == max(layers):
                raise _Enough

        return hook

    hooks = [stack[layer].register_forward_pre_hook(seen(layer), with_kwargs=True) for layer in layers]
    try:
        with torch.inference_mode():
            model(**features)
    except _Enough:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _passes(transformer: Transformer, texts: Sequence[str], limit: int) -> Iterator[dict[str, Tensor]]:
    """Yield tokens of texts, long ones first, in passes of a bounded size."""
    model: Any = transformer.model
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    start = 0
    while start < len(order):
        # A token covers at least a character, apart from byte tokens; special tokens are added.
        longest = min(limit, len(texts[order[start]]) + 2)
        rows = order[start : start + max(1, PASS // longest)]
        features = transformer.preprocess([texts[row] for row in rows])
        yield {name: features[name].to(model.device) for name in ("input_ids", "attention_mask")}
        start += len(rows)


def _longest(transformer: Transformer, max_length: int | None) -> int:
    config: Any = transformer.model.config
    limits = [max_length, transformer.max_seq_length, getattr(config, "max_position_embeddings", None)]
    return int(min(limit for limit in limits if limit))


def _norm_before(model: nn.Module, layer: int) -> nn.LayerNorm:
    """Return a copy of the normalisation whose output layer `layer` reads: the last one of the layer before.

    Raises:
        ContextMeansError: The layer before has none.
    """
    _, stack = layer_stack(model)
    norms = [module for module in stack[layer - 1].modules() if isinstance(module, nn.LayerNorm)]
    if not norms:
        raise ContextMeansError(
            f"The layers of {type(model).__name__} do not end in a LayerNorm, so mean hidden states cannot "
            "replace its embeddings. Keep its own embeddings."
        )
    return copy.deepcopy(norms[-1])


def _before(norm: nn.LayerNorm, sums: Tensor, count: Tensor) -> Tensor:
    """Undo scale and shift of a normalisation in sums of its outputs; dimensions of scale 0 become 0."""
    scale, shift = norm.weight.float(), norm.bias.float()
    small = scale.abs() < 1e-4 * scale.abs().max()
    return ((sums - count[:, None] * shift) / scale.masked_fill(small, 1.0)).masked_fill(small, 0.0)


def _guess(own: Tensor, sums: Tensor, count: Tensor) -> Tensor:
    """Return a guess of each token's mean, `(vocabulary, width)`: a ridge regression on its own embedding.

    Args:
        own: The encoder's own embeddings, `(vocabulary, width)`.
        sums: Sums of the hidden states, `(vocabulary, width)`.
        count: Occurrences, `(vocabulary,)`.
    """
    seen = count > 0
    inputs = torch.cat([own, own.new_ones(len(own), 1)], dim=1)
    weight = count[seen].sqrt()[:, None]
    weighted = inputs[seen] * weight
    gram = weighted.T @ weighted
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
    found: Tensor = torch.linalg.solve(gram, weighted.T @ (sums[seen] / weight.square() * weight))
    return inputs @ found
