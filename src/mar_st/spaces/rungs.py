"""The rungs of a ladder: query encoders of several sizes for one document space, and their layers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Transformer

from mar_st.model.layers import keep_layers, set_dropout
from mar_st.model.opening import route
from mar_st.modules import is_truncation, truncation
from mar_st.spaces.space import SpaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.model.context_means import HiddenMeans
    from mar_st.recipes.schema import Side

#: The rung without a transformer, and the copy of the teacher.
LOOKUP_RUNG, FULL_RUNG = "lookup", "full"

#: The default rung, if the ladder has it.
DEFAULT_RUNG = "2"

#: Which of an encoder's layers a rung takes.
Choice: TypeAlias = Literal["last", "first", "spread"]

#: Token embeddings of a rung made of upper layers: mean hidden states, or those of the encoder itself.
Embeddings: TypeAlias = Literal["context-means", "copied"]


@dataclass(frozen=True, order=True)
class Rung:
    """One query encoder of a ladder; rungs are ordered by size.

    Attributes:
        size: Number of layers; 0 for `lookup`, infinite for `full`.
        name: Name as the user writes it: `lookup`, a number of layers, or `full`.
    """

    size: float
    name: str

    @property
    def layers(self) -> int:
        """Return the number of layers of a rung that is neither `lookup` nor `full`."""
        return int(self.size)

    @property
    def trained(self) -> bool:
        """Return True if the rung has transformer layers that are trained."""
        return self.name not in (LOOKUP_RUNG, FULL_RUNG)


def parse_ladder(text: str) -> tuple[Rung, ...]:
    """Return the rungs of a list such as `lookup,1,2,4,full`, from small to large.

    Raises:
        SpaceError: A rung is not `lookup`, `full` or a number of layers, one is repeated, or there is none.
    """
    rungs: list[Rung] = []
    for part in text.split(","):
        name = part.strip()
        if name == LOOKUP_RUNG:
            rungs.append(Rung(0, name))
        elif name == FULL_RUNG:
            rungs.append(Rung(float("inf"), name))
        elif name.isascii() and name.isdigit() and int(name) > 0:
            rungs.append(Rung(int(name), str(int(name))))
        else:
            raise SpaceError(
                f"--ladder is a list of '{LOOKUP_RUNG}', numbers of layers from 1, and '{FULL_RUNG}', such "
                f"as {LOOKUP_RUNG},1,2,4; got {name!r} in {text!r}."
            )
    twice = sorted({rung.name for rung in rungs if rungs.count(rung) > 1})
    if twice:
        raise SpaceError(f"--ladder names the rung {twice[0]} more than once: {text!r}.")
    return tuple(sorted(rungs))


def default_rung(rungs: Sequence[Rung], name: str | None) -> Rung:
    """Return the rung that becomes `query`: the one named, else that of two layers, else the largest.

    Raises:
        SpaceError: The ladder has no rung of this name.
    """
    if name is None:
        return next((rung for rung in rungs if rung.name == DEFAULT_RUNG), max(rungs))
    chosen = next((rung for rung in rungs if rung.name == name.removeprefix("query-")), None)
    if chosen is None:
        names = ", ".join(rung.name for rung in rungs)
        raise SpaceError(f"--default-rung is {name!r}, but the rungs of the ladder are {names}.")
    return chosen


def teacher_layers(model: SentenceTransformer) -> dict[Side, int]:
    """Return the layer counts of a teacher's encoders that start with a transformer."""
    layers: dict[Side, int] = {}
    sides: tuple[Side, ...] = ("query", "document")
    for side in sides:
        first: Any = route(model, side)[0]
        if isinstance(first, Transformer):
            layers[side] = int(first.model.config.num_hidden_layers)
    return layers


def source_side(model: SentenceTransformer, most: int) -> Side | None:
    """Return the side of a teacher whose layers the rungs take.

    It is the query side, whose vectors the rungs learn, or the document side if the query side has fewer
    layers than the ladder asks for.

    Args:
        model: The teacher.
        most: Layers of the largest rung.

    Returns:
        `None` if neither side starts with a transformer.

    Raises:
        SpaceError: Neither side has that many layers.
    """
    depths = teacher_layers(model)
    for side, depth in depths.items():
        if depth >= most:
            return side
    if depths:
        raise SpaceError(
            f"--ladder asks for {most} layers, but the teacher has {max(depths.values())}. Leave the rung "
            f"out; '{FULL_RUNG}' is a copy of the teacher."
        )
    return None


def copied(chain: Sequence[Any], dim: int) -> list[Any]:
    """Return a copy of an encoder without its normalisation, cut to the first `dim` dimensions."""
    kept = [module for module in chain if not isinstance(module, Normalize)]
    # A cut between two normalisations is scaled, which only they undo.
    modules = [
        truncation(module.in_features, module.out_features)
        if is_truncation(module)
        else copy.deepcopy(module)
        for module in kept
    ]
    sized = [module for module in modules if hasattr(module, "get_embedding_dimension")]
    width = int(sized[-1].get_embedding_dimension())
    return [*modules, truncation(width, dim)] if width > dim else modules


def kept_layers(modules: Sequence[Any], layers: int, choice: Choice) -> list[int]:
    """Return the indices of the layers of an encoder that a rung keeps.

    Args:
        modules: Modules that start with a Transformer.
        layers: Number of layers to keep.
        choice: `last`: the last ones, whose output the rung has to reproduce; `first`: the first ones;
            `spread`: evenly spaced, including the first and the last.

    Raises:
        SpaceError: The encoder has fewer layers.
    """
    depth = int(modules[0].model.config.num_hidden_layers)
    if layers > depth:
        raise SpaceError(f"--ladder asks for {layers} layers, but the student has only {depth}.")
    places: dict[Choice, Sequence[int]] = {
        "last": range(depth - layers, depth),
        "first": range(layers),
        "spread": np.linspace(0, depth - 1, layers).round().astype(int).tolist(),
    }
    return list(places[choice])


def cut_to_layers(modules: list[Any], layers: Sequence[int], means: HiddenMeans | None = None) -> None:
    """Keep some layers of an encoder, in place.

    Args:
        modules: Modules that start with a Transformer.
        layers: Indices of the layers to keep.
        means: Mean hidden states of the encoder, which become the token embeddings; `None`: keep its own.
    """
    keep_layers(modules, layers, what="--ladder")
    if means is not None and layers[0] in means.sums:
        modules[0] = means.write(modules[0], layers[0])


def trainable(modules: Sequence[Any], *, max_length: int, dropout: bool) -> None:
    """Make a copied encoder a student, in place: float32, of limited length, all weights trained."""
    first: Any = modules[0]
    first.max_seq_length = min(first.max_seq_length or max_length, max_length)
    for module in modules:
        module.float()
        module.requires_grad_(not is_truncation(module))
    if not dropout:
        set_dropout(first.model, 0.0)
