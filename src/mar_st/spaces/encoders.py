"""Query encoders for an existing document space: given ones, small new ones, and the rungs of a ladder."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.util import is_sentence_transformer_model
from transformers import AutoConfig

from mar_st.errors import MarError
from mar_st.model.encoders import PROMPT_NAMES, check_source, linear_projection, load_encoder
from mar_st.model.layers import set_dropout
from mar_st.model.mar import MAR, open_model
from mar_st.model.names import model_source
from mar_st.model.tokenizers import train_tokenizer
from mar_st.modules.arrangement import is_truncation, route, truncation, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules.module import Module

    from mar_st.recipes.schema import Side

#: The rung without a transformer, and the copy of the teacher.
LOOKUP_RUNG, FULL_RUNG = "lookup", "full"

#: The default rung, if the ladder has it.
DEFAULT_RUNG = "2"

#: Hidden size, attention heads and maximum vocabulary size of a new student.
WIDTH, HEADS, VOCABULARY = 256, 4, 16_000


def small_encoder(texts: Sequence[str], *, layers: int, max_length: int) -> list[Module]:
    """Build a `gte` encoder with random weights and a trained tokenizer, as `[Transformer, Pooling]`.

    Args:
        texts: Texts for the tokenizer. It drops white space, which suits Chinese; for other languages give a
            student that has its own tokenizer.
        layers: Layers.
        max_length: Tokens per text.
    """
    tokenizer = train_tokenizer(texts, "query", vocab_size=VOCABULARY, max_length=max_length)
    config = AutoConfig.for_model(
        "gte",
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=3 * WIDTH,
        max_position_embeddings=max(max_length, 512),
        initializer_range=WIDTH**-0.5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
    )
    return load_encoder((config, tokenizer), "query", max_length=max_length)


def given_encoder(source: str, *, max_length: int) -> list[Module]:
    """Return the modules of a model that becomes the query encoder, without its normalisation.

    Args:
        source: Folder or Hub name: a sentence-transformers model (its pooling is kept; if it has routes, the
            `query` route is used) or a transformers model (pooled at its first token).
        max_length: Maximum tokens per text.

    Raises:
        MarError: The model does not exist.
    """
    check_source(source, what="student")
    source = model_source(source)
    if not is_sentence_transformer_model(source):
        modules: list[Any] = load_encoder(source, "query", max_length=max_length)
    else:
        model = open_model(source, routes="query", device="cpu")
        modules = [module for module in route(model, "query") if not isinstance(module, Normalize)]
    trainable(modules, max_length=max_length)
    return modules


def student(modules: Sequence[Module], dim: int, *, prompt: str, similarity: str, seed: int) -> MAR:
    """Return a MAR with only a query route, whose vectors have `dim` dimensions and length 1.

    A linear layer is added if the encoder has another width (LEAF); its weights are drawn with the seed.
    """
    chain: list[Any] = list(modules)
    if width(chain) != dim:
        torch.manual_seed(seed)
        chain.append(linear_projection(width(chain), dim))
    return MAR(
        modules=[Router({"query": [*chain, Normalize()]}, default_route="query")],
        prompts={"document": "", **dict.fromkeys(PROMPT_NAMES.values(), prompt)},
        similarity_fn_name=similarity,
    ).eval()


def with_documents(
    query: MAR, teacher: SentenceTransformer, *, dim: int, unit: bool, document_prompt: str
) -> MAR:
    """Return a student and the teacher that encodes the documents as one model with two routes.

    The document route is made of the teacher's own modules. If the space is narrower than the teacher, they
    are followed by the cut, and by a normalisation if the teacher's vectors have length 1.

    Args:
        query: The student.
        teacher: The model that the documents were encoded with.
        dim: Width of the space.
        unit: Whether its vectors have length 1.
        document_prompt: The teacher's prompt for documents.
    """
    document: list[Any] = list(route(teacher, "document"))
    full = width(document)
    if full > dim:
        document = [*document, truncation(full, dim), *([Normalize()] if unit else [])]
    return MAR(
        modules=[
            Router({"query": list(query.route_modules("query")), "document": document}, default_route="query")
        ],
        prompts={**query.prompts, "document": document_prompt},
        similarity_fn_name=query.similarity_fn_name,
    ).eval()


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
        MarError: A rung is not `lookup`, `full` or a number of layers, one is repeated, or there is none.
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
            raise MarError(
                f"--ladder is a list of '{LOOKUP_RUNG}', numbers of layers from 1, and '{FULL_RUNG}', such "
                f"as {LOOKUP_RUNG},1,2,4; got {name!r} in {text!r}."
            )
    twice = sorted({rung.name for rung in rungs if rungs.count(rung) > 1})
    if twice:
        raise MarError(f"--ladder names the rung {twice[0]} more than once: {text!r}.")
    return tuple(sorted(rungs))


def default_rung(rungs: Sequence[Rung], name: str | None) -> Rung:
    """Return the rung that becomes `query`: the one named, else that of two layers, else the largest.

    Raises:
        MarError: The ladder has no rung of this name.
    """
    if name is None:
        return next((rung for rung in rungs if rung.name == DEFAULT_RUNG), max(rungs))
    chosen = next((rung for rung in rungs if rung.name == name.removeprefix("query-")), None)
    if chosen is None:
        names = ", ".join(rung.name for rung in rungs)
        raise MarError(f"--default-rung is {name!r}, but the rungs of the ladder are {names}.")
    return chosen


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
        MarError: Neither side has that many layers.
    """
    sides: tuple[Side, ...] = ("query", "document")
    firsts: dict[Side, Any] = {side: route(model, side)[0] for side in sides}
    depths = {
        side: int(first.model.config.num_hidden_layers)
        for side, first in firsts.items()
        if isinstance(first, Transformer)
    }
    for side, depth in depths.items():
        if depth >= most:
            return side
    if depths:
        raise MarError(
            f"--ladder asks for {most} layers, but the teacher has {max(depths.values())}. Leave the rung "
            f"out; '{FULL_RUNG}' is a copy of the teacher."
        )
    return None


def copied(chain: Sequence[Any], dim: int) -> list[Any]:
    """Return a copy of an encoder without its normalisation, cut to the first `dim` dimensions."""
    modules = [copy.deepcopy(module) for module in chain if not isinstance(module, Normalize)]
    full = width(modules)
    return [*modules, truncation(full, dim)] if full > dim else modules


def kept_layers(modules: Sequence[Any], layers: int) -> list[int]:
    """Return the indices of the last layers of an encoder, whose output a rung has to reproduce.

    Raises:
        MarError: The encoder has fewer layers.
    """
    depth = int(modules[0].model.config.num_hidden_layers)
    if layers > depth:
        raise MarError(f"--ladder asks for {layers} layers, but the student has only {depth}.")
    return list(range(depth - layers, depth))


def trainable(modules: Sequence[Any], *, max_length: int) -> None:
    """Make an encoder a student, in place: float32, of limited length, all weights trained, no dropout.

    Dropout would be noise: the targets are fixed vectors, one for each text.
    """
    first: Any = modules[0]
    first.max_seq_length = min(first.max_seq_length or max_length, max_length)
    for module in modules:
        module.float()
        module.requires_grad_(not is_truncation(module))
    if isinstance(first, Transformer):
        set_dropout(first.model, 0.0)
