"""Plans of the recipes that are shipped."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from mar_st.planning.costs import forward_flops
from mar_st.planning.devices import DEVICES
from mar_st.planning.fit import keeps_gradients
from mar_st.planning.launch import Launch, LaunchError
from mar_st.planning.plan import fitted, plan
from mar_st.recipes.load import changed, load_recipe, recipe_names
from mar_st.rehearsal.tiny import RETRIEVAL_DATA, shrink

CONFIGS = Path(str(files("mar_st") / "configs"))


@pytest.mark.thorough
def test_the_plan_of_a_published_recipe_has_the_papers_figures():
    planned = plan(load_recipe("mar-0.3b-4b"), device="A100-40GB", world=32)
    stages = {stage.name: stage for stage in planned.stages}
    assert stages["unsupervised"].steps == 9375  # 60M pairs, 3 epochs, 19,200 a batch
    assert stages["align"].steps == 2_800_000 // 2560 + 5_600_000 // 2560
    joint = stages["joint"].parameters
    assert joint["query"] == {
        "mode": "full",
        "trained": 305_368_320,
        "frozen": 0,
        "dtype": "float32",
        "attention": None,
    }
    assert joint["document"] == {
        "mode": "lora",
        "trained": 66_060_288,
        "frozen": 4_022_468_096,
        "dtype": "bfloat16",
        "attention": None,
    }
    assert stages["joint"].memory["weights"] == 4 * (305_368_320 + 66_060_288) + 2 * 4_022_468_096
    assert all(stage.fits for stage in planned.stages)
    assert stages["align"].setup_flops == pytest.approx(
        8.4e6 / 32 * forward_flops_of("Qwen/Qwen3-4B", 512), rel=1e-3
    )


def _marked(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def forward_flops_of(name, length):
    from mar_st.planning.backbones import source_shape

    return forward_flops(source_shape(name), 1, length)


#: Devices that published recipes are trained on, and how many.
FLEETS = [("H100", 1), ("H100", 8), ("A100-40GB", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_stage_of_a_shipped_recipe_fits_after_the_printed_change(name):
    """The printed change is applied unchanged, and then the stage fits."""
    recipe = load_recipe(name)
    if any(entry.path.startswith(RETRIEVAL_DATA) for entry in recipe.data):
        recipe = shrink(recipe)
    for device, world in FLEETS:
        stages = plan(recipe, device=device, world=world).stages
        changes = [change for stage in stages for change in stage.changes]
        assert all(stage.fits or len(stage.changes) == 1 for stage in stages), (device, world)
        assert not any(stage.changes for stage in stages if stage.fits)
        if changes:
            again = plan(changed(recipe, changes), device=device, world=world).stages
            assert all(stage.fits and not stage.changes for stage in again)
            # Memory is all that changes.
            assert [stage.steps for stage in again] == [stage.steps for stage in stages]
        if keeps_gradients(changes):
            assert fitted(recipe, DEVICES[device], Launch(world))[1] == changes
        else:
            assert name == "hotelmatch"  # which trains four billion weights in full


@pytest.mark.thorough
def test_the_plan_takes_deepspeed_into_account():
    """ZeRO 1 splits the optimizer's state, and bf16 weights take the place of float32 ones."""
    recipe = load_recipe("medical-embedder-base")
    plain, zero = (
        plan(recipe, world=8, deepspeed=path).stages[0].memory for path in (None, CONFIGS / "zero1.json")
    )
    assert zero["optimizer"] == pytest.approx(plain["optimizer"] * 1.5 / 8)
    assert zero["weights"] == pytest.approx(plain["weights"] / 2)
    with pytest.raises(LaunchError, match="stage unsupervised: ZeRO 2"):
        plan(recipe, world=8, deepspeed=CONFIGS / "zero2.json")


@pytest.mark.slow
def test_an_adapter_is_suggested_but_never_set_to_make_a_stage_fit():
    recipe = load_recipe("medical-embedder-4b", ["stages.document-init.lora_r=null"])
    (stage,) = plan(recipe, device="A100-40GB").stages
    assert (stage.fits, stage.changes) == (False, ["stages.document-init.lora_r=32"])
    assert plan(changed(recipe, stage.changes), device="A100-40GB").stages[0].fits
    with pytest.raises(LaunchError, match="An adapter fits, and is another model"):
        fitted(recipe, DEVICES["A100-40GB"], Launch())


@pytest.mark.slow
def test_stages_that_do_not_fit_are_named():
    whole = load_recipe("ablations/finetune-only", ["stages.query-init.mini_batch_tokens=null"])
    assert plan(whole, device="H100").stages[0].fits is False
    assert plan(load_recipe("ablations/finetune-only"), device="H100").stages[0].fits is True


@pytest.mark.thorough
@pytest.mark.parametrize("name", _marked(recipe_names(), quick={"kale", "medte"}))
def test_every_shipped_recipe_can_be_planned(name):
    recipe = load_recipe(name)
    if any(entry.path.startswith(RETRIEVAL_DATA) for entry in recipe.data):
        recipe = shrink(recipe)
    planned = plan(recipe)
    assert planned.hours is not None
    assert planned.memory > 0
    json.dumps(planned.to_json())


@pytest.mark.slow
def test_an_encoder_merged_in_float32_stays_in_float32():
    planned = plan(load_recipe("mar-0.3b-4b", ["stages.document-init.lora_merge_dtype=float32"]))
    held = {s.name: s.parameters["document"]["dtype"] for s in planned.stages if "document" in s.parameters}
    assert held == {"document-init": "bfloat16", "align": "float32", "joint": "float32"}
