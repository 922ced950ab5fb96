"""Small stored encoders and rows for the tests marked `gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, AutoModel

from mar_st.model.encoders import write_encoder
from mar_st.model.tokenizers import train_tokenizer
from tests.mar_st.conftest import make_config
from tests.mar_st.train_helpers import triples

if TYPE_CHECKING:
    from pathlib import Path

#: Architecture of query encoders; older versions of transformers have no `gte`.
QUERY_KIND = "gte" if "gte" in CONFIG_MAPPING else "bert"
WIDTHS = {"query": 32, "document": 64}


def texts() -> list[str]:
    """The distinct texts of `triples`, queries first, of 4 to some 60 characters."""
    queries = [row["query"] for row in triples()]
    positives = [row["positive"] * (1 + i % 3) for i, row in enumerate(triples())]
    return list(dict.fromkeys([*queries, *positives]))


def write_side(folder: Path, side: Any, dtype: torch.dtype = torch.bfloat16) -> Path:
    """An encoder of a side, its weights stored in `dtype`."""
    tokenizer = train_tokenizer(texts(), side, vocab_size=300, max_token_length=2)
    torch.manual_seed(len(side))
    config = make_config(QUERY_KIND if side == "query" else "qwen3", WIDTHS[side])
    config.vocab_size, config.max_position_embeddings = max(320, len(tokenizer)), 128
    config.pad_token_id = tokenizer.pad_token_id
    config.dtype = torch.float32  # drawn in float32 and then rounded: all dtypes hold the same weights
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    folder.mkdir(parents=True)
    encoder = AutoModel.from_config(config).to(dtype)
    encoder.config.dtype = dtype
    write_encoder(encoder, tokenizer, folder)
    return folder


def write_sides(folder: Path, dtype: torch.dtype = torch.bfloat16) -> dict[str, Path]:
    """Encoders of both sides."""
    return {side: write_side(folder / side, side, dtype) for side in WIDTHS}
