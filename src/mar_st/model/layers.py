"""The layers of a loaded transformer: keeping some of them, their dropout, and their inputs."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from mar_st.errors import MarError
from mar_st.text.texts import token_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sentence_transformers.base.modules.module import Module
    from sentence_transformers.sentence_transformer.modules import Transformer


def layer_stack(model: Any) -> tuple[str, nn.ModuleList]:
    """Return the name and the list of a transformer's layers.

    Raises:
        MarError: The list of the architecture's layers cannot be found.
    """
    count = model.config.num_hidden_layers
    for name, module in model.named_modules():
        known = name.rpartition(".")[2] in ("layers", "layer", "h")
        if isinstance(module, nn.ModuleList) and len(module) == count and known:
            return name, module
    raise MarError(f"{type(model).__name__} has no list of {count} layers to choose from.")


def keep_layers(encoder: Sequence[Module], layers: Sequence[int]) -> None:
    """Cut a transformer to some of its layers, in place (KALE; Wang & Lyu).

    Args:
        encoder: Modules that start with a Transformer.
        layers: Indices of the layers to keep, in their new order.

    Raises:
        MarError: The list of the architecture's layers cannot be found.
    """
    transformer: Any = encoder[0]
    model = transformer.model
    name, stack = layer_stack(model)
    kept = nn.ModuleList(stack[index] for index in layers)
    for position, layer in enumerate(kept):
        part: Any
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = position
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, kept)
    model.config.num_hidden_layers = len(kept)
    if kinds := getattr(model.config, "layer_types", None):
        model.config.layer_types = [kinds[index] for index in layers]


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout of a transformers model one probability, in place.

    The configuration is set as well, so that a saved model keeps it. Encoders were pre-trained with the
    dropout of their configuration (BERT: 0.1); if their vectors are learnt from fixed targets, it is noise.

    Args:
        model: The model.
        probability: Share of values that are set to zero while the model trains, 0 to 1.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        else:
            _set_numbers(module, vars(module), probability)
    config: Any = getattr(model, "config", None)
    if config is not None:
        _set_numbers(config, config.to_dict(), probability)


def _set_numbers(owner: Any, content: dict[str, Any], probability: float) -> None:
    """Set the numbers with dropout in their name; attention without a dropout module reads them."""
    for name, value in list(content.items()):
        if "dropout" in name and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(owner, name, probability)


#: Maximum tokens of a forward pass, with padding.
MAX_PASS_TOKENS = 8_192


@dataclass
class InputEmbeddings:
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
            MarError: The model computes its hidden states in another way.
        """
        home: Any = getattr(model, "embeddings", None)
        word: Any = model.get_input_embeddings()  # type: ignore[operator]
        embeddings = cls(word)
        if isinstance(getattr(home, "LayerNorm", None), nn.LayerNorm):
            embeddings.norm, embeddings.types = home.LayerNorm, getattr(home, "token_type_embeddings", None)
            embeddings.positions = getattr(home, "position_embeddings", None)
            row = getattr(embeddings.positions, "padding_idx", None)
            embeddings.first = 0 if row is None else int(row) + 1
        # A padding token would shift the positions.
        padding = {getattr(model.config, "pad_token_id", None), embeddings.first - 1}
        known = [token for token in range(min(12, word.num_embeddings)) if token not in padding]
        ids = torch.tensor([known], device=word.weight.device)
        states = layer_input(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, 0)
        if not torch.allclose(embeddings.output(ids[0]), states[0].float(), atol=1e-2, rtol=1e-2):
            raise MarError(
                f"{type(model).__name__} makes hidden states of its token embeddings in a way that is not "
                "supported, so mean hidden states cannot replace them. Keep its own embeddings."
            )
        return embeddings

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


class _Reached(Exception):  # noqa: N818 -- no error
    """Ends a forward pass at a layer, whose input it carries."""


@torch.inference_mode()
def layer_input(model: Any, features: dict[str, Tensor], layer: int) -> Tensor:
    """Return the input of a layer, `(texts, tokens, width)`; layers from there on do not run."""

    def stop(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        raise _Reached(args[0] if args else given["hidden_states"])

    _, stack = layer_stack(model)
    with stack[layer].register_forward_pre_hook(stop, with_kwargs=True):
        try:
            model(**features)
        except _Reached as reached:
            states: Tensor = reached.args[0]
    return states


def passes(transformer: Transformer, texts: Sequence[str], limit: int) -> Iterator[dict[str, Tensor]]:
    """Yield tokens of texts, long ones first, in passes of a bounded size."""
    model: Any = transformer.model
    # A token covers at least a character, apart from byte tokens; special tokens are added.
    lengths = [min(limit, len(text) + 2) for text in texts]
    for rows in token_batches(lengths, MAX_PASS_TOKENS):
        features = transformer.preprocess([texts[row] for row in rows.tolist()])
        yield {name: features[name].to(model.device) for name in ("input_ids", "attention_mask")}


def norm_before(model: nn.Module, layer: int) -> nn.LayerNorm:
    """Return a copy of the normalisation whose output a layer reads: the last one of the layer before."""
    _, stack = layer_stack(model)
    norms = [module for module in stack[layer - 1].modules() if isinstance(module, nn.LayerNorm)]
    return copy.deepcopy(norms[-1])


def without_norm(norm: nn.LayerNorm, sums: Tensor, count: Tensor) -> Tensor:
    """Undo scale and shift of a normalisation in sums of its outputs; dimensions of scale 0 become 0."""
    scale, shift = norm.weight.float(), norm.bias.float()
    small = scale.abs() < 1e-4 * scale.abs().max()
    return ((sums - count[:, None] * shift) / scale.masked_fill(small, 1.0)).masked_fill(small, 0.0)
