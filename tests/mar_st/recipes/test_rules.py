"""Tests of rules that follow from a recipe, in recipes of every kind of stage."""

from __future__ import annotations

import pytest

from mar_st.recipes.load import load_recipe
from mar_st.recipes.rules import (
    joins,
    projects,
    reads_documents,
    renormalises_prefixes,
    stage_entries,
    stage_seed,
    tokenizer_entries,
    trained_sides,
)
from mar_st.recipes.schema import AlignStage, ContrastiveStage, Data, JointStage, RetroMAEStage

FIELDS = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 1}
ALIGN = AlignStage(stage="align", name="align", **FIELDS)
JOINT = JointStage(stage="joint", name="joint", temperature=0.05, **FIELDS)
FROZEN_QUERY = JOINT.model_copy(update={"freeze": "query"})
QUERY = ContrastiveStage(stage="contrastive", name="query-init", temperature=0.05, side="query", **FIELDS)
DOCUMENT = ContrastiveStage(
    stage="contrastive", name="document-init", temperature=0.05, side="document", **FIELDS
)
RETROMAE = RetroMAEStage(stage="retromae", name="retromae", side="query", **FIELDS)
PAIRS = Data(name="pairs", path="rows.jsonl")


def _recipe(*stages):
    return load_recipe("mar-mini").model_copy(update={"stages": stages})


@pytest.mark.parametrize(
    ("stage", "sides"),
    [
        (ALIGN, ("query",)),
        (QUERY, ("query",)),
        (DOCUMENT, ("document",)),
        (RETROMAE, ("query",)),
        (JOINT, ("query", "document")),
        (JOINT.model_copy(update={"freeze": "document"}), ("query",)),
        (FROZEN_QUERY, ("document",)),
    ],
)
def test_a_stage_trains_the_sides_that_it_does_not_freeze(stage, sides):
    assert trained_sides(stage) == sides


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ((RETROMAE, QUERY, ALIGN, JOINT), [False, False, True, True]),
        ((QUERY, DOCUMENT), [True, True]),
        ((RETROMAE, DOCUMENT), [False, True]),
        ((QUERY, JOINT), [False, True]),
    ],
)
def test_stages_that_join_the_sides_add_the_projection_or_without_them_those_that_train_vectors(
    stages, expected
):
    recipe = _recipe(*stages)
    assert [projects(recipe, stage) for stage in stages] == expected


def test_alignment_and_joint_stages_give_a_mar():
    assert [joins(stage) for stage in (RETROMAE, QUERY, DOCUMENT, ALIGN, JOINT)] == [False] * 3 + [True] * 2


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


def test_entries_of_a_stage_have_its_negatives_and_its_data():
    recipe = load_recipe("mar-mini")
    stages = {stage.name: stage for stage in recipe.stages}
    given = recipe.data_of(stages["document-init"])
    assert [entry.negatives for entry in given] == [1, 1]
    changed = stage_entries(recipe, stages["document-init"])  # negatives: 0
    assert [entry.negatives for entry in changed] == [0, 0]
    assert [entry.model_copy(update={"negatives": 1}) for entry in changed] == list(given)
    assert stage_entries(recipe, stages["query-init"]) == given
    assert stage_entries(recipe, stages["joint"].model_copy(update={"data": ("sts",)})) == given[1:]


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


def test_prefixes_are_renormalised_unless_the_model_cuts_after_its_normalisation():
    prefixes = QUERY.model_copy(update={"dims": (8, 16)})
    recipe = _recipe(QUERY)
    with_it, without = (recipe.model_copy(update={"renormalise": value}) for value in (True, False))
    assert [renormalises_prefixes(with_it, stage) for stage in (QUERY, prefixes)] == [True, True]
    assert [renormalises_prefixes(without, stage) for stage in (QUERY, prefixes)] == [True, False]
