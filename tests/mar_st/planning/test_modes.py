"""Training modes of the encoders by stage: all weights, LoRA, or none."""

from __future__ import annotations

import pytest

from mar_st.planning.backbones import side_shapes
from mar_st.planning.modes import held_dtypes, training_of
from mar_st.recipes.load import load_recipe


def modes(recipe):
    shapes = side_shapes(recipe.query, recipe.document)
    return {
        stage.name: {side: training_of(stage, side, shapes[side], recipe.precision) for side in shapes}
        for stage in recipe.stages
    }


def test_the_published_recipe_trains_documents_by_lora_and_freezes_them_in_alignment():
    stages = modes(load_recipe("mar-0.3b-4b"))
    documents = {name: stages[name]["document"].mode for name in ("document-init", "align", "joint")}
    assert documents == {"document-init": "lora", "align": "frozen", "joint": "lora"}
    assert {stages[name]["query"].mode for name in ("query-init", "align", "joint")} == {"full"}
    joint, align = stages["joint"]["document"], stages["align"]["document"]
    assert (joint.lora_r > 0, align.lora_r, align.checkpointing, align.gradcache) == (True, 0, False, False)
    assert (joint.dtype, stages["joint"]["query"].dtype) == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], ("full", "frozen")),
        (["stages.joint.freeze=null"], ("full", "full")),
        (["stages.joint.freeze=null", "stages.joint.lora_r=8"], ("full", "lora")),
        (["stages.joint.freeze=query"], ("frozen", "full")),
    ],
)
def test_a_joint_stage_trains_the_sides_that_are_not_frozen(overrides, expected):
    joint = modes(load_recipe("mar-e5", overrides))["joint"]
    assert (joint["query"].mode, joint["document"].mode) == expected


def test_the_teacher_of_a_distillation_is_frozen():
    distill = modes(load_recipe("distill"))["distill"]
    student = load_recipe("distill").stages[-1].side
    assert {side: trained.mode for side, trained in distill.items()} == {
        side: "full" if side == student else "frozen" for side in distill
    }


@pytest.mark.parametrize(("precision", "bf16"), [("fp32", False), ("bf16", True)])
def test_the_precision_is_that_of_the_recipe(precision, bf16):
    trained = [
        t
        for sides in modes(load_recipe("mar-e5", [f"precision={precision}"])).values()
        for t in sides.values()
    ]
    assert {one.bf16 for one in trained} == {bf16}


@pytest.mark.parametrize(("merge", "after"), [("stored", "bfloat16"), ("float32", "float32")])
def test_a_merged_adapter_keeps_the_dtype_that_the_stage_asks_for(merge, after):
    recipe = load_recipe("mar-0.3b-4b", [f"stages.document-init.lora_merge_dtype={merge}"])
    held = held_dtypes(recipe, side_shapes(recipe.query, recipe.document))
    assert held["document-init", "document"] == "bfloat16"
    assert held["align", "document"] == after


def test_weights_that_a_stage_trains_in_full_stay_in_float32():
    recipe = load_recipe("mar-0.3b-4b")
    held = held_dtypes(recipe, side_shapes(recipe.query, recipe.document))
    assert held["joint", "query"] == "float32"
