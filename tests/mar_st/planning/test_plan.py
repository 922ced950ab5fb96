"""Plans: against numbers computed by hand, and against the memory of real passes."""

from __future__ import annotations

import pytest

from mar_st.commands.train import show_trained
from mar_st.errors import MarError
from mar_st.planning.backbones import count, recipe_shapes
from mar_st.planning.costs import lora_parameters
from mar_st.planning.launch import Launch
from mar_st.planning.plan import plan, short_of_memory
from mar_st.recipes.load import load_recipe, recipe_names


@pytest.fixture(scope="module")
def mar_4b():
    return {stage.name: stage for stage in plan(load_recipe("mar-0.3b-4b"))}


def test_steps_are_whole_batches_of_the_expected_rows(mar_4b):
    steps = {name: stage.steps for name, stage in mar_4b.items()}
    assert steps["retromae"] == 3 * (60_000_000 // 384)
    assert steps["align"] == 2_800_000 // 2560 + 5_600_000 // 2560
    assert steps["joint"] == sum(rows // 640 for rows in (500_000, 20_000, 50_000, 10_000))
    assert "every text counts as max_length" in mar_4b["align"].notes[0]


def test_operations_follow_from_the_shape(mar_4b):
    recipe = load_recipe("mar-0.3b-4b")
    shape = recipe_shapes(recipe)["document"]
    # Nine texts of 512 tokens in a row; LoRA: forward, backward of activations, GradCache and checkpointing.
    per_token = 2 * count(shape).linear + 4 * 512 * 32 * 128 * 36 / 2
    adapter = 2 * lora_parameters(shape, 32)
    expected = 640 * 9 * 512 * (4 * per_token + 5 * adapter)
    assert mar_4b["document-init"].flops["lora"] == pytest.approx(expected, rel=1e-6)


def test_parameters_and_weights_are_those_of_the_published_encoders(mar_4b):
    sides = mar_4b["joint"].parameters
    assert sides["query"]["trained"] == sides["query"]["all"] == 305_368_320
    adapted = 2 * (2560 + 4096) + 2 * (2560 + 1024) + 3 * (2560 + 9728)
    assert sides["document"]["trained"] == 32 * 36 * adapted
    memory = mar_4b["document-init"].memory
    assert memory["optimizer"] == 8 * sides["document"]["trained"]
    assert memory["weights"] == 2 * sides["document"]["all"] + 4 * sides["document"]["trained"]


def test_a_stage_that_does_not_fit_is_marked_and_told(mar_4b):
    assert [name for name, stage in mar_4b.items() if not stage.fits] == ["retromae"]
    shown = show_trained({"stages": [mar_4b["retromae"]]})
    assert "fits: false" in shown
    assert " GiB" in shown
    recipe = load_recipe("mar-0.3b-4b")
    (line,) = short_of_memory(recipe, Launch(), 80 * 2**30, recipe.stages, ())
    assert "stage retromae" in line


def test_devices_share_a_batch(mar_4b):
    recipe = load_recipe("mar-0.3b-4b")
    eight = {stage.name: stage for stage in plan(recipe, "8xH100")}
    assert eight["align"].flops["full"] == pytest.approx(mar_4b["align"].flops["full"] / 8)
    assert eight["align"].hours == pytest.approx(mar_4b["align"].hours / 8)
    with pytest.raises(MarError, match="batch_size 384 is over all devices"):
        plan(recipe, "7xH100")
    with pytest.raises(MarError, match="No GPUs '1xH1000'"):
        plan(recipe, "1xH1000")


def test_hours_follow_from_the_share_of_the_peak_that_each_kind_of_step_reaches(mar_4b):
    stage = mar_4b["document-init"]
    assert stage.hours == pytest.approx(stage.steps * stage.flops["lora"] / (0.2 * 989e12) / 3600)
    # What was merged before is float32.
    assert mar_4b["joint"].parameters["document"]["dtype"] == "float32"


@pytest.mark.slow
def test_data_that_are_here_are_counted():
    stages = {stage.name: stage for stage in plan(load_recipe("mar-mini"))}
    assert all(stage.steps and not stage.notes for stage in stages.values())
    assert stages["align"].tokens_per_step < 128 * 144


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_can_be_planned(name):
    assert all(stage.memory["peak"] > 0 for stage in plan(load_recipe(name)))
