"""Stages of a recipe: settings that are refused, and what follows from settings."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from mar_st.errors import MarError
from mar_st.recipes.load import load_recipe
from mar_st.recipes.stage_schema import Stage


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dims=[0]", r"dims are different numbers above 0; got \[0\]"),
        ("dims=[8, 8]", r"dims are different numbers above 0; got \[8, 8\]"),
        ("dims=[8, -8]", "dims are different numbers above 0"),
    ],
)
def test_impossible_settings_of_a_stage_are_refused(setting, message):
    with pytest.raises(MarError, match=message):
        load_recipe("mar-mini", [f"stages.document-init.{setting}"])


@pytest.mark.parametrize("temperature", [2, 0.0005])
def test_a_learnable_temperature_starts_within_its_bounds(temperature):
    settings = ["stages.document-init.learnable_temperature=true"]
    assert load_recipe("mar-mini", settings)
    with pytest.raises(MarError, match=r"a learnable temperature starts from 0\.001 to 1; got"):
        load_recipe("mar-mini", [*settings, f"stages.document-init.temperature={temperature}"])


def test_raw_vectors_with_a_contrastive_weight_are_refused(load, content):
    with pytest.raises(MarError, match="vectors: raw has no scores to contrast"):
        load(content, ["stages.align.vectors=raw"])
    changes = ["stages.align.vectors=raw", "stages.align.contrastive_weight=0"]
    assert load(content, changes).stages[-2].vectors == "raw"


FIELDS = {"name": "one", "batch_size": 8, "learning_rate": 1e-3}
KINDS = {
    "retromae": {},
    "contrastive": {"side": "query", "temperature": 0.1},
    "align": {},
    "distill": {"temperature": 0.1},
    "joint": {"temperature": 0.1},
}


def _stage(kind, **fields):
    return TypeAdapter(Stage).validate_python({"stage": kind, **FIELDS, **KINDS[kind], **fields})


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("retromae", {"mini_batch_tokens": 64}, "for stages that compare texts"),
        ("retromae", {"temperature": 0.1}, "retromae.temperature\n.*Extra inputs"),
        ("contrastive", {"mine": {}}, "mine chooses 'negatives' hard negatives"),
        ("contrastive", {"mine": {"range_max": 2}, "negatives": 3}, "got 3 of 2"),
        ("align", {"mse_weight": 0, "contrastive_weight": 0}, "all loss weights are zero"),
        ("align", {"text_weights": [0.6, 0.0]}, "text_weights must be positive"),
        ("joint", {"freeze": "document", "lora_r": 4}, "the documents are frozen; leave out lora_r"),
    ],
)
def test_a_stage_refuses_settings_that_it_cannot_be_trained_with(kind, fields, message):
    with pytest.raises(ValidationError, match=message):
        _stage(kind, **fields)
