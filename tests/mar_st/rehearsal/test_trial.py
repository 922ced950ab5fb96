"""A trial times real steps, and a plan that uses it reports these times."""

from __future__ import annotations

import pytest

import mar_st.rehearsal.trial as module
from mar_st.commands.plan import make
from mar_st.planning.plan import PlanError, plan
from mar_st.recipes.load import load_recipe
from mar_st.rehearsal.shorten import shorten
from mar_st.rehearsal.tiny import shrink, write_evaluation
from mar_st.rehearsal.trial import STEPS, TRIAL_LIMITS, TrialError, try_stages


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A MAR of four stages on small encoders, evaluated while it trains."""
    recipe = shrink(load_recipe("mar-mini"))
    path = str(write_evaluation(tmp_path_factory.mktemp("dev")))
    content = recipe.model_dump() | {"evaluation": {"path": path, "every": 7}, "compile": False}
    return type(recipe).model_validate(content)


@pytest.fixture(scope="module")
def tried(recipe):
    lines = []
    return try_stages(recipe, say=lines.append), lines


@pytest.mark.slow
def test_every_stage_is_timed(recipe, tried):
    trials, lines = tried
    assert list(trials) == [stage.name for stage in recipe.stages]
    assert [line.split(":")[0] for line in lines] == [f"tried {name}" for name in trials]
    for stage in recipe.stages:
        trial = trials[stage.name]
        assert 0 < trial.step < 10
        assert trial.memory > 100e6
        assert trial.evaluation > 0
        assert (trial.teacher > 0) == (stage.stage == "align")


@pytest.mark.slow
def test_a_plan_uses_the_measured_times(recipe, tried):
    trials, _ = tried
    measured = plan(recipe, device="cpu", trials=trials)
    reckoned = plan(recipe, device="cpu")
    for stage, before in zip(measured.stages, reckoned.stages, strict=True):
        trial = trials[stage.name]
        texts = stage.setup_hours * 3600 / trial.teacher if trial.teacher else 0
        evaluations = -(-stage.steps // 7)
        assert stage.hours * 3600 == pytest.approx(trial.seconds(stage.steps, texts, evaluations))
        assert stage.memory["peak"] == trial.memory
        assert stage.memory["weights"] == before.memory["weights"]
        assert before.hours is None
    assert measured.hours == pytest.approx(sum(stage.hours for stage in measured.stages))
    assert measured.assumption == "time and memory of steps tried on this machine"


def test_a_trial_limits_steps_and_rows(recipe):
    short = shorten(load_recipe("mar-small"), TRIAL_LIMITS)
    assert {stage.max_steps for stage in short.stages} == {STEPS}
    assert {entry.limit for entry in short.data} == {2048}
    content = recipe.model_dump()
    content["data"][0]["limit"] = 50
    assert shorten(type(recipe).model_validate(content), TRIAL_LIMITS).data[0].limit == 50


@pytest.mark.slow
def test_a_stage_that_fails_is_named(recipe, tmp_path):
    content = recipe.model_dump()
    content["data"][0]["path"] = str(tmp_path / "none.jsonl")
    with pytest.raises(TrialError, match=rf"stage {recipe.stages[0].name} could not be tried: .*none\.jsonl"):
        try_stages(type(recipe).model_validate(content), say=lambda _: None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mfu": 0.4}, "--trial measures the speed; leave out --mfu"),
        ({"calibrate": True}, "--trial measures the speed; leave out --calibrate"),
        ({"world": 2}, "--trial trains on one device"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(recipe, settings, message, monkeypatch):
    monkeypatch.setattr(module, "try_stages", lambda *_, **__: pytest.fail("tried"))
    asked = {"gpu": None, "world": 1, "mfu": None, "calibrate": False} | settings
    with pytest.raises(PlanError, match=message):
        make(recipe, trial=True, **asked)
