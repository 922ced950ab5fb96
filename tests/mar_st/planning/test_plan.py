from __future__ import annotations

import json

import pytest

from mar_st.planning.backbones import shape_of
from mar_st.planning.costs import Training
from mar_st.planning.devices import DEVICES, Device
from mar_st.planning.launch import Launch, LaunchError
from mar_st.planning.plan import PlanError, Planner, fitted, plan
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import Recipe
from mar_st.rehearsal.calibrate import TrainingSpeed, measure
from mar_st.runs.train import train

pytestmark = pytest.mark.usefixtures("no_dry_runs")


def _steps_done(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return max(row["step"] for row in rows)


@pytest.mark.thorough
def test_planned_steps_match_a_real_run(recipe, tmp_path):
    planned = plan(recipe)
    out = tmp_path / "run"
    train(recipe, out)
    done = {stage.name: _steps_done(next(out.glob(f"*-{stage.name}"))) for stage in recipe.stages}
    assert {stage.name: stage.steps for stage in planned.stages} == done
    assert planned.stages[0].steps == 140 // 8 + 70 // 8


def test_lengths_come_from_the_data_with_prompts_and_padding(recipe):
    planned = plan(recipe).stages[0]
    assert any("tokenizer trained" in note for note in planned.notes)
    bare = plan(recipe.model_copy(update={"prompts": {"query": ""}})).stages[0]
    assert planned.tokens_per_step == pytest.approx(bare.tokens_per_step + 8)
    assert planned.tokens == planned.steps * planned.tokens_per_step
    # Without data every text counts as max_length: a query, a positive, a negative.
    data = [entry.model_copy(update={"path": "gone.jsonl", "expected_rows": 80}) for entry in recipe.data]
    blind = plan(recipe.model_copy(update={"data": tuple(data)})).stages[0]
    assert blind.tokens_per_step == 3 * 8 * 32
    assert blind.steps == 20
    assert "max_length" in blind.notes[0]
    data = [entry.model_copy(update={"path": "gone.jsonl"}) for entry in recipe.data]
    unknown = plan(recipe.model_copy(update={"data": tuple(data)}))
    assert unknown.stages[0].steps is None
    assert unknown.hours is None
    assert "rows of triples, one are not known" in unknown.stages[0].notes[0]


@pytest.mark.thorough
def test_hours_follow_speed_and_devices(recipe):
    one, two = plan(recipe, mfu=0.4), plan(recipe, mfu=0.2)
    assert two.hours == pytest.approx(2 * one.hours)
    shared = plan(recipe, world=4)
    assert shared.hours == pytest.approx(one.hours / 4, rel=0.1)  # smaller batches pad less
    stage = one.stages[0]
    peak = DEVICES["H100"].fp32 * 1e12
    assert stage.step_seconds == pytest.approx(sum(stage.flops_per_step.values()) / (peak * 0.4))
    measured = plan(recipe, device="cpu", measure=lambda *_: TrainingSpeed(1e9, 1e-9))
    stage = measured.stages[0]
    trained = stage.parameters["query"]["trained"]
    assert stage.step_seconds == pytest.approx(stage.flops_per_step["query"] / 1e9 + trained * 1e-9)
    assert plan(recipe, device="cpu").hours is None


def test_the_cost_of_a_frozen_encoder_is_counted_once(recipe):
    align = plan(recipe).stages[2]
    assert align.parameters["document"]["trained"] == 0
    assert align.flops_per_step["document"] == 0
    assert align.setup_flops > 0
    assert align.disk["teacher"] == 4 * 70 * 4 * 32  # a query, two positives, a negative; 32 floats


def test_a_stage_that_cannot_be_made_to_fit_is_reported(recipe):
    pretrained = Recipe.model_validate(
        {
            **recipe.model_dump(),
            "stages": [{"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 1e-3}],
        }
    )
    small = Device(None, None, 2**-20)
    (stage,) = [Planner(pretrained, small, Launch()).stage(stage) for stage in pretrained.stages]
    assert (stage.fits, stage.changes) == (False, [])
    with pytest.raises(LaunchError, match=r"checkpointing make it fit\. Or use"):
        fitted(pretrained, small, Launch())


@pytest.mark.parametrize("mfu", [0.0, -1.0, float("nan"), 1.5])
def test_an_impossible_share_of_the_peak_is_refused(recipe, mfu):
    with pytest.raises(PlanError, match="mfu is a share of the device's peak"):
        plan(recipe, mfu=mfu)


def test_unknown_devices_and_indivisible_batches_are_refused():
    recipe = load_recipe("medical-embedder-4b")
    with pytest.raises(PlanError, match="No device 'H1000'; known are H200, H200-NVL, H100"):
        plan(recipe, device="H1000")
    with pytest.raises(LaunchError, match="batch_size 640 is over all devices, and 7"):
        plan(recipe, world=7)


def test_speed_is_measured(recipe):
    shape = shape_of(recipe.query)
    speed = measure(shape, Training("full"), 16, seconds=0.2)
    assert 1e7 < speed.flops < 1e15
    assert speed.optimizer > 0
    assert measure(shape, Training("frozen"), 16, seconds=0.1).optimizer == 0


def test_steps_too_short_for_a_gpu_are_marked(recipe):
    bound = [
        note for stage in plan(recipe, device="H100").stages for note in stage.notes if "launches" in note
    ]
    assert len(bound) == len(recipe.stages)
    large = plan(load_recipe("mar-0.3b-4b"), device="H100")
    (joint,) = (stage for stage in large.stages if stage.name == "joint")
    assert not any("launches" in note for note in joint.notes)
    measured = plan(recipe, device="cpu", measure=lambda *_: TrainingSpeed(1e15, 0.0))
    assert not any("launches" in note for stage in measured.stages for note in stage.notes)


def test_the_plan_uses_dtype_and_attention_of_a_backbone():
    base = plan(load_recipe("mar-0.3b-4b"))
    wide = plan(load_recipe("mar-0.3b-4b", ["document.dtype=float32", "document.attn_implementation=eager"]))
    for before, after in zip(base.stages, wide.stages, strict=True):
        if "document" in before.parameters:
            assert before.parameters["document"]["dtype"] == "bfloat16"
            assert after.parameters["document"]["dtype"] == "float32"
            assert after.parameters["document"]["attention"] == "eager"
    weights = [planned.stages[-1].memory["weights"] for planned in (base, wide)]
    assert weights[1] - weights[0] == 2 * 4_022_468_096


def test_the_cost_of_a_teacher_of_scores_is_counted_once(recipe):
    def joint(**changes):
        content = recipe.model_dump(mode="json")
        content["stages"][-1] |= changes
        return plan(Recipe.model_validate(content)).stages[-1]

    alone, taught = joint(freeze=None), joint(freeze=None, kl_weight=1.0)
    assert alone.setup_flops == 0
    assert taught.setup_flops > 0
    assert taught.flops_per_step == alone.flops_per_step
    assert taught.disk["teacher"] % (4 * 64) == 0  # full width
    scoring = joint(kl_weight=1.0, teacher="cross-encoder:org/name")
    assert scoring.setup_flops == 0
    assert any("not counted: what org/name says" in note for note in scoring.notes)


def test_second_texts_of_an_alignment_are_counted():
    def align(*changes):
        return plan(load_recipe("kale", list(changes))).stages[-1]

    two, one = align(), align("stages.align.text_weights=[1.0]")
    assert two.flops_per_step["query"] == pytest.approx(2 * one.flops_per_step["query"])
    assert two.steps == one.steps
    assert two.setup_flops > one.setup_flops


def test_the_cost_of_frozen_documents_is_counted_once(recipe):
    def joint(**changes):
        content = recipe.model_dump(mode="json")
        content["stages"][-1] |= changes
        return plan(Recipe.model_validate(content)).stages[-1]

    read, encoded = joint(), joint(teacher="cross-encoder:org/name", kl_weight=1.0)
    assert read.flops_per_step["document"] == 0 < encoded.flops_per_step["document"]
    assert read.flops_per_step["query"] == encoded.flops_per_step["query"]
    assert read.setup_flops > 0 == encoded.setup_flops
    assert read.tokens_per_step < encoded.tokens_per_step


def test_averaging_hidden_states_is_counted_once():
    flops = []
    for names in ("[open-texts]", "null"):
        recipe = load_recipe("mar-e5", [f"query.context_means={names}"])
        flops.append({stage.name: stage.setup_flops for stage in plan(recipe).stages})
    averaged, copied = flops
    assert averaged["align"] > copied["align"]
    assert averaged["joint"] == copied["joint"]
    assert averaged["document-init"] == copied["document-init"] == 0
