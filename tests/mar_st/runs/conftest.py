"""Fixtures that several tests of runs share."""

from __future__ import annotations

import pytest
import yaml

from mar_st.recipes.load import load_recipe
from tests.conftest import write_jsonl
from tests.mar_st.runs.sides_recipe import QUERY, ROWS, SHAPE, TOKENIZER


@pytest.fixture
def recipe(tmp_path):
    """Builds a recipe: ``recipe(stages=[...], dim=24, query={...})``."""
    write_jsonl(tmp_path / "triples.jsonl", [{"query": q, "positive": p} for q, p in ROWS])

    def build(*overrides, **settings):
        content = {
            "name": "sides",
            "description": "for tests",
            "dim": 16,
            "prompts": {"query": "检索："},
            "query": QUERY,
            "document": {
                "max_length": 24,
                "tokenizer": TOKENIZER,
                "config": {**SHAPE, "model_type": "qwen3", "hidden_size": 24, "num_hidden_layers": 3,
                           "num_key_value_heads": 1, "head_dim": 12},
            },
            "data": [{"name": "answers", "path": str(tmp_path / "triples.jsonl"), "negatives": 0}],
            **settings,
        }  # fmt: skip
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return load_recipe(path, list(overrides))

    return build
