"""Tests of rules that follow from a recipe, in recipes of every kind of stage."""

from __future__ import annotations

import pytest

from mar_st.recipes.load import load_recipe
from mar_st.recipes.rules import reads_documents, stage_seed, tokenizer_entries, used_entries
from mar_st.recipes.schema import AlignStage, Data, JointStage

FIELDS = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 1}
ALIGN = AlignStage(stage="align", name="align", **FIELDS)
JOINT = JointStage(stage="joint", name="joint", temperature=0.05, **FIELDS)
PAIRS = Data(name="pairs", path="rows.jsonl")


def _recipe(*stages):
    return load_recipe("mar-mini").model_copy(update={"stages": stages})


def _frozen(**changes):
    return JOINT.model_copy(update={"freeze": "document", **changes})


@pytest.mark.parametrize(
    ("stage", "entries", "expected"),
    [
        (_frozen(), [{}], True),
        (JOINT, [{}], False),
        (_frozen(freeze="query"), [{}], False),
        (ALIGN, [{}], False),
        (_frozen(), [{}, {"symmetric": True}], False),
    ],
)
def test_vectors_of_frozen_documents_are_read_unless_something_needs_their_texts(stage, entries, expected):
    assert reads_documents(stage, [PAIRS.model_copy(update=entry) for entry in entries]) == expected


def test_data_of_a_stage_that_was_left_out_are_not_needed():
    recipe = load_recipe("bmretriever-410m", ["stages.pretrain=null"])
    used = {entry.name for entry in used_entries(recipe)}
    assert {entry.name for entry in recipe.data} - used == {"pretrain"}


@pytest.mark.parametrize(("own", "expected"), [(None, 42), (0, 0), (7, 7)])
def test_a_seed_of_the_stage_comes_before_that_of_the_recipe(own, expected):
    stage = ALIGN.model_copy(update={"seed": own})
    assert stage_seed(_recipe(stage), stage) == expected


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, ["retrieval", "sts"]), (("sts",), ["sts"]), (("retrieval", "sts"), ["retrieval", "sts"])],
)
def test_a_tokenizer_is_trained_on_the_data_that_it_names(named, expected):
    recipe = _recipe(ALIGN)
    backbone = recipe.query.model_copy(update={"tokenizer_data": named})
    assert [entry.name for entry in tokenizer_entries(recipe, backbone)] == expected
