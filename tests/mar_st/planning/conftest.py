"""A small recipe of all kinds of stages, and plans without dry runs."""

from __future__ import annotations

import json

import pytest

from mar_st.planning import footprint
from mar_st.recipes.schema import Recipe

ENCODERS = {
    "query": {
        "config": {
            "model_type": "gte", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 64,
        },
        "tokenizer": {"vocab_size": 200},
        "max_length": 32,
    },
    "document": {
        "config": {
            "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "max_position_embeddings": 64,
        },
        "tokenizer": {"vocab_size": 200},
        "max_length": 32,
    },
}  # fmt: skip

SYLLABLES = "头疼发热感冒咳嗽医生高血压糖尿病怎么办吃药检查"


@pytest.fixture
def recipe(tmp_path):
    """A MAR of all kinds of stages on 70 triples with two positives each and 13 texts."""
    triples, texts = tmp_path / "triples.jsonl", tmp_path / "texts.jsonl"

    def text(number, length):
        return "".join(SYLLABLES[(number * 7 + i * (number % 5 + 1)) % len(SYLLABLES)] for i in range(length))

    with triples.open("w", encoding="utf-8") as out:
        for i in range(70):
            row = {
                "query": f"{i}{text(i, 4)}",
                "positives": [f"{i}甲{text(i, 8)}", f"{i}乙{text(i, 12)}"],
                "negatives": [f"{i}丙{text(i, 10)}"],
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    texts.write_text("".join(json.dumps({"text": f"{i}{text(i, 9)}"}) + "\n" for i in range(13)))
    shared = {"batch_size": 8, "learning_rate": 1e-3}
    return Recipe.model_validate(
        {
            "name": "planned",
            "description": "small",
            "dim": 32,
            "prompts": {"query": "问"},
            **ENCODERS,
            "data": [
                {"name": "triples", "path": str(triples), "form": "triples"},
                {"name": "one", "path": str(triples), "form": "triples", "positives": "one"},
            ],
            "stages": [
                {"stage": "contrastive", "name": "query-init", "side": "query", "temperature": 0.1, **shared},
                {"stage": "contrastive", "name": "document-init", "side": "document", "data": ["one"],
                 "temperature": 0.1, "dims": [16, 64], **shared, "epochs": 1.5},
                {"stage": "align", "name": "align", "data": ["one"], **shared},
                {"stage": "joint", "name": "joint", "temperature": 0.1, "freeze": "document", **shared,
                 "max_steps": 3},
            ],
        }
    )  # fmt: skip


@pytest.fixture
def no_dry_runs(monkeypatch):
    """Passes take memory by a formula, where all else of a plan is tested: a dry run takes half a second."""

    def linear(shape, rows, length, training):
        return 64 * rows * length * shape.width * shape.layers

    monkeypatch.setattr(footprint, "pass_memory", linear)
