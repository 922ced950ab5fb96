"""Small stored encoders and rows for the tests marked `gpu`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, AutoModel

from mar_st.model.encoders import write_encoder
from mar_st.model.tokenizers import train_tokenizer
from tests.mar_st.conftest import make_config
from tests.mar_st.train_helpers import QUESTIONS, SYMPTOMS

if TYPE_CHECKING:
    from pathlib import Path

#: Architecture of query encoders; older versions of transformers have no `gte`.
QUERY_KIND = "gte" if "gte" in CONFIG_MAPPING else "bert"
WIDTHS = {"query": 32, "document": 64}


def rows() -> list[dict[str, Any]]:
    """Questions with their answers and wrong ones."""
    triples = []
    for symptom in SYMPTOMS:
        for ending, answer in QUESTIONS.items():
            others = [text.format(symptom) for other, text in QUESTIONS.items() if other != ending]
            triples.append(
                {
                    "query": f"{symptom}{ending}",
                    "positive": answer.format(symptom),
                    "negatives": others[:2],
                }
            )
    return triples


def texts() -> list[str]:
    """The distinct texts of `rows`, queries first, of 4 to some 60 characters."""
    queries = [row["query"] for row in rows()]
    return list(dict.fromkeys([*queries, *(row["positive"] * (1 + i % 3) for i, row in enumerate(rows()))]))


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


def write_rows(path: Path) -> Path:
    """`rows` as a file."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows()), encoding="utf-8")
    return path


def recipe_content(folder: Path, stages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A recipe over stored bf16 encoders; `folder` gets them and the rows."""
    sides = write_sides(folder)
    lengths = {"query": 32, "document": 96}
    data = {"name": "rows", "path": str(write_rows(folder / "rows.jsonl")), "negatives": 1, "prompt": ""}
    return {
        "name": "small",
        "description": "for tests on a GPU",
        "dim": WIDTHS["query"],
        "precision": "bf16",
        **{side: {"source": str(path), "max_length": lengths[side]} for side, path in sides.items()},
        "data": [data],
        "stages": stages,
        **fields,
    }
