"""Query encoders for an existing document space: given ones, or small new ones."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.util import is_sentence_transformer_model
from transformers import AutoConfig

from mar_st.errors import MarError
from mar_st.files import move_folder, write_text
from mar_st.model.encoders import check_source, linear_projection, load_encoder
from mar_st.model.layers import set_dropout
from mar_st.model.mar import MAR
from mar_st.model.names import model_source
from mar_st.model.opening import open_model, route
from mar_st.model.prompts import PROMPT_NAMES
from mar_st.model.tokenizers import forget_lengths, train_tokenizer
from mar_st.modules import truncation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules.module import Module

#: Width of an attention head.
HEAD_WIDTH = 64

#: Marker of a finished phase.
DONE_FILE = "done.json"


def small_encoder(
    texts: Sequence[str], *, layers: int, width: int, vocabulary: int, max_length: int
) -> list[Module]:
    """Build a `gte` encoder with random weights and a trained tokenizer, as `[Transformer, Pooling]`.

    Args:
        texts: Texts for the tokenizer. It drops white space, which suits Chinese; for other languages give a
            student that has its own tokenizer.
        layers: Layers.
        width: Hidden size; a multiple of 64, or less than 128.
        vocabulary: Maximum number of tokens in the vocabulary.
        max_length: Tokens per text.

    Raises:
        MarError: The width cannot be divided into heads.
    """
    heads = max(width // HEAD_WIDTH, 1)
    if width % (2 * heads):
        raise MarError(
            f"A width of {width} cannot be divided into attention heads of {HEAD_WIDTH} dimensions; "
            f"choose a multiple of {HEAD_WIDTH}."
        )
    tokenizer = train_tokenizer(texts, "query", vocab_size=vocabulary, max_length=max_length)
    config = AutoConfig.for_model(
        "gte",
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=3 * width,
        max_position_embeddings=max(max_length, 512),
        initializer_range=width**-0.5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
    )
    return load_encoder((config, tokenizer), "query", max_length=max_length)


def given_encoder(source: str, *, max_length: int, dropout: bool = False) -> list[Module]:
    """Return the modules of a model that becomes the query encoder, without its normalisation.

    Args:
        source: Folder or Hub name: a sentence-transformers model (its pooling is kept; if it has routes, the
            `query` route is used) or a transformers model (pooled at its first token).
        max_length: Maximum tokens per text.
        dropout: Keep the dropout of its configuration.

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
        limit = getattr(modules[0], "max_seq_length", None)
        modules[0].max_seq_length = min(limit or max_length, max_length)
    for module in modules:
        module.float()
        module.requires_grad_(requires_grad=True)
    if not dropout and isinstance(modules[0], Transformer):
        set_dropout(modules[0].model, 0.0)
    return modules


def student(modules: Sequence[Module], dim: int, *, prompt: str, similarity: str, seed: int) -> MAR:
    """Return a MAR with only a query route, whose vectors have `dim` dimensions and length 1.

    A linear layer is added if the encoder has another width (LEAF); its weights are drawn with the seed.
    """
    chain: list[Any] = list(modules)
    sized = [module for module in chain if hasattr(module, "get_embedding_dimension")]
    width = int(sized[-1].get_embedding_dimension())
    if width != dim:
        torch.manual_seed(seed)
        chain.append(linear_projection(width, dim))
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
    sized = [module for module in document if hasattr(module, "get_embedding_dimension")]
    full = int(sized[-1].get_embedding_dimension())
    if full > dim:
        document = [*document, truncation(full, dim), *([Normalize()] if unit else [])]
    return MAR(
        modules=[
            Router({"query": list(query.route_modules("query")), "document": document}, default_route="query")
        ],
        prompts={**query.prompts, "document": document_prompt},
        similarity_fn_name=query.similarity_fn_name,
    ).eval()


def saved_student(folder: Path) -> MAR:
    """Load the student that a finished phase saved."""
    return MAR.from_pretrained(folder, routes="query")


def save_student(model: MAR, folder: Path, marker: dict[str, Any]) -> None:
    """Save a model aside, move it into place, then write the marker beside it."""
    part, target = folder / "model.part", folder / "model"
    shutil.rmtree(part, ignore_errors=True)
    forget_lengths(model)
    model.save_pretrained(str(part), create_model_card=False)
    shutil.rmtree(target, ignore_errors=True)
    move_folder(part, target)
    write_text(folder / DONE_FILE, json.dumps(marker))
