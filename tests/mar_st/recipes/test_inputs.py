"""Tests of the inputs of a recipe: backbones, data entries and evaluations."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mar_st.recipes.schema import Backbone, Data

RANDOM = {"config": {"model_type": "gte", "hidden_size": 32}, "tokenizer": {"vocab_size": 100}}
ENTRY = {"name": "qa", "path": "rows.jsonl"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give one of 'source'"),
        ({"source": "x", **RANDOM}, "give one of 'source'"),
        ({"source": "x", "layers_of_document": [0]}, "give one of 'source'"),
        ({"config": RANDOM["config"]}, "'tokenizer' goes together with 'config'"),
        ({"source": "x", "tokenizer": {"vocab_size": 100}}, "'tokenizer' goes together with 'config'"),
        ({"source": "x", "tokenizer_data": ["qa"]}, "'tokenizer_data' needs 'tokenizer'"),
        ({"source": "x", "context_means": ["qa"]}, "first layer must be 1 or higher"),
        ({"layers_of_document": [0, 1], "context_means": ["qa"]}, "first layer must be 1 or higher"),
        ({"layers_of_document": [1], "bigrams": 5}, "texts of 'context_means'"),
        ({**RANDOM, "vocabulary": {"keep": 9, "texts": ["qa"]}}, "cuts that of a 'source'"),
        ({**RANDOM, "config": {"hidden_size": 32}}, "needs 'model_type'"),
        ({"source": "x", "sorce": "y"}, "Extra inputs"),
    ],
)
def test_impossible_backbones_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        Backbone.model_validate(fields)


@pytest.mark.parametrize("layers", [[], [-1], [0, -2], [3, 3]])
def test_lists_of_layers_that_no_encoder_has_are_refused(layers):
    with pytest.raises(ValidationError, match=r"layers from 0, each once; got \["):
        Backbone(layers_of_document=layers)
    assert Backbone(layers_of_document=[3, 0]).layers_of_document == (3, 0)


@pytest.mark.parametrize("size", ["128", 12.5, None, True, 0, -1, [1]])
def test_a_hidden_size_that_is_no_number_of_dimensions_is_refused(size):
    with pytest.raises(ValidationError, match=r"'hidden_size' of 'config' is a whole number above 0; got"):
        Backbone(**RANDOM | {"config": {"model_type": "gte", "hidden_size": size}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"form": "texts"}, "form 'texts' needs a 'role'"),
        ({"role": "query"}, "form 'texts' needs a 'role'"),
        ({"instruction": "Query: ", "prompt": ""}, "says where the text goes"),
        ({"instruction": "{instruction} "}, "write prompt: ''"),
        ({"weight": float("inf")}, "finite number"),
        ({"form": "texts", "role": "query", "prompt": "", "instruction": "{instruction}"}, "is for pairs"),
    ],
)
def test_impossible_data_entries_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        Data.model_validate({**ENTRY, **fields})


@pytest.mark.parametrize("fields", [{"instruction": ""}, {"instruction": "{instruction}", "prompt": ""}])
def test_instructions_can_be_left_out_or_take_the_place_of_the_prompt(fields):
    assert Data(**ENTRY, **fields).instruction == fields["instruction"]
