"""Launches of training: how they are recognised, and what they cannot train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mar_st.planning.launch import (
    Launch,
    LaunchError,
    check_launch,
    check_stage,
    pass_sizes,
    rows_per_device,
)
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import RetroMAEStage
from tests.mar_st.stages.helpers import stage

RETROMAE = {"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture
def deepspeed(tmp_path):
    """Writes a DeepSpeed configuration and returns a launch with it."""

    def write(content, **options):
        path = tmp_path / "deepspeed.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return Launch(deepspeed=path, **options)

    return write


def test_pass_sizes_follow_the_settings_of_the_stage():
    assert pass_sizes(stage("joint", gradient_accumulation=3), 8) == [3, 3, 2]
    assert pass_sizes(stage("joint", mini_batch_size=2), 8) == [8]  # GradCache, in one pass
    assert pass_sizes(RetroMAEStage(**RETROMAE, mini_batch_size=16), 8) == [8]
    with pytest.raises(ValueError, match="both split the batch; give one"):
        RetroMAEStage(**RETROMAE, mini_batch_size=2, gradient_accumulation=2)


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
@pytest.mark.parametrize("fields", [{"mini_batch_size": 3}, {"gradient_accumulation": 4}])
def test_passes_have_every_row_once(fields, rows):
    sizes = pass_sizes(RetroMAEStage(**RETROMAE, **fields), rows)
    assert sum(sizes) == rows
    assert min(sizes) > 0
    assert max(sizes) <= 3


def test_a_launch_is_recognised_by_its_environment(monkeypatch, tmp_path):
    for name in ("WORLD_SIZE", "MAR_DEEPSPEED"):
        monkeypatch.delenv(name, raising=False)
    alone = Launch.here()
    assert (alone.world, alone.deepspeed, alone.zero) == (1, None, None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("MAR_DEEPSPEED", "zero.json")
    assert (Launch.here().world, Launch.here().deepspeed) == (4, Path("zero.json"))
    assert Launch.here(tmp_path / "own.json").deepspeed == tmp_path / "own.json"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable DeepSpeed configuration"),
        ("[]", "not a readable DeepSpeed configuration"),
        ({"zero_optimization": {"stage": "two"}}, "not a readable DeepSpeed configuration"),
        ({"zero_optimization": {"stage": 3}}, "asks for ZeRO stage 3; stages 0 to 2 are supported"),
        ({"scheduler": {}}, "has the section 'scheduler', which would replace"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(deepspeed, content, message):
    with pytest.raises(LaunchError, match=rf"deepspeed\.json .*{message}"):
        check_launch(load_recipe("kale"), deepspeed(content), names=[])


@pytest.mark.parametrize(("content", "zero"), [({}, 0), ({"zero_optimization": {"stage": 2}}, 2)])
def test_the_zero_stage_is_that_of_the_configuration(deepspeed, content, zero):
    assert deepspeed(content).zero == zero
    with pytest.raises(LaunchError, match="needs DeepSpeed, which is not installed: pip install deepspeed"):
        _ = deepspeed(content, installed=False).zero


@pytest.mark.parametrize(
    ("world", "suggested"), [(3, "multiple of 3, for instance 9"), (16, "multiple of 16, for instance 16")]
)
def test_devices_that_cannot_share_a_batch_are_told_a_size_that_they_can(world, suggested):
    with pytest.raises(LaunchError, match=f"stage joint: batch_size 8 .* {suggested}"):
        rows_per_device(stage("joint"), world)
    assert rows_per_device(stage("joint"), 4) == 2


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        (stage("joint", gradient_accumulation=4), True),
        (stage("joint", gradient_accumulation=5), False),  # a row has nothing to be compared with
        (RetroMAEStage(**RETROMAE, gradient_accumulation=8), True),
        (RetroMAEStage(**RETROMAE, gradient_accumulation=9), False),
    ],
)
def test_a_pass_needs_a_row_and_two_where_rows_are_compared(made, fits):
    if fits:
        check_stage(made, Launch())
    else:
        with pytest.raises(LaunchError, match="8 rows per device cannot be split"):
            check_stage(made, Launch())


def test_only_the_stages_that_are_still_to_be_trained_are_checked():
    recipe = load_recipe("mar-0.3b-4b", ["stages.align.batch_size=2561"])
    others = [made.name for made in recipe.stages if made.name != "align"]
    check_launch(recipe, Launch(8), names=others)
    with pytest.raises(LaunchError, match=r"^stage align: batch_size 2561 .*8 devices cannot share it"):
        check_launch(recipe, Launch(8))
