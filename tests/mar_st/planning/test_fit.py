"""Changes of a stage's memory settings: their order, and the first with which it fits."""

from __future__ import annotations

import json

import pytest

from mar_st.planning.fit import as_settings, candidates, keeps_gradients, search
from mar_st.planning.launch import Launch
from mar_st.recipes.schema import RetroMAEStage
from tests.mar_st.stages.helpers import stage

RETROMAE = {"stage": "retromae", "name": "pre", "batch_size": 64, "learning_rate": 1e-3}


def _pass_rows(made):
    """Rows of a pass stand for the memory of a stage; checkpointing halves it, an adapter takes a tenth."""
    rows = min(made.mini_batch_size or made.batch_size, made.batch_size) // made.gradient_accumulation
    return rows * (0.5 if made.gradient_checkpointing else 1) * (0.1 if getattr(made, "lora_r", None) else 1)


def test_cheaper_changes_are_tried_first():
    tried = list(candidates(stage("joint", batch_size=32), 1))
    keys = list(dict.fromkeys(tuple(change) for change in tried))
    size, both = "mini_batch_size", ("gradient_checkpointing", "mini_batch_size")
    assert keys == [(size,), ("gradient_checkpointing",), both, ("lora_r",), ("lora_r", size)]
    # Mini-batches that leave a GPU underused come after checkpointing.
    alone = [change for change in tried if len(change) == 1 and "lora_r" not in change]
    assert [change.get(size, "checkpointing") for change in alone] == [16, 8, "checkpointing", 4, 2, 1]


@pytest.mark.parametrize(
    ("made", "world", "sizes"),
    [
        (stage("joint", batch_size=32), 4, {4, 2, 1}),  # 8 rows a device
        (stage("joint", batch_size=32, mini_batch_size=4), 1, {2, 1}),
        (stage("joint", batch_size=20), 1, {16, 8, 4, 2, 1}),
        (RetroMAEStage(**RETROMAE), 8, {4, 2, 1}),
    ],
)
def test_mini_batches_become_smaller(made, world, sizes):
    tried = list(candidates(made, world))
    assert {change["mini_batch_size"] for change in tried if "mini_batch_size" in change} == sizes


def test_a_batch_that_is_split_already_is_split_further():
    made = RetroMAEStage(**RETROMAE, gradient_accumulation=4, gradient_checkpointing=True)
    assert list(candidates(made, 1)) == [{"gradient_accumulation": count} for count in (8, 16, 32, 64)]


@pytest.mark.parametrize(
    ("made", "adapts"),
    [
        (stage("joint"), True),
        (stage("contrastive"), True),
        (stage("joint", freeze="document"), False),
        (stage("joint", lora_r=4), False),
        (stage("distill"), False),
        (RetroMAEStage(**RETROMAE), False),
    ],
)
def test_an_adapter_is_proposed_only_where_a_stage_may_have_one(made, adapts):
    assert any("lora_r" in change for change in candidates(made, 1)) is adapts


@pytest.mark.parametrize(
    ("usable", "change"),
    [
        (16, {"mini_batch_size": 16}),
        (7, {"mini_batch_size": 4}),
        (0.6, {"gradient_checkpointing": True, "mini_batch_size": 1}),
        (0.2, {"lora_r": 32, "mini_batch_size": 2}),
        (0.01, None),
    ],
)
def test_the_first_change_that_fits_is_returned(usable, change):
    assert search(stage("joint", batch_size=32), Launch(), _pass_rows, usable) == change


def test_changes_that_a_launch_cannot_train_are_passed_over(tmp_path):
    path = tmp_path / "zero2.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}}), encoding="utf-8")
    made = stage("joint", batch_size=32)
    assert search(made, Launch(deepspeed=path), _pass_rows, 20) == {"gradient_checkpointing": True}
    assert search(made, Launch(), _pass_rows, 20) == {"mini_batch_size": 16}


def test_changes_are_written_as_settings_of_the_command():
    change = {"gradient_checkpointing": True, "mini_batch_size": 4}
    settings = ["stages.joint.gradient_checkpointing=true", "stages.joint.mini_batch_size=4"]
    assert as_settings(stage("joint"), change) == settings
    assert keeps_gradients(settings)
    assert not keeps_gradients([*settings, *as_settings(stage("joint"), {"lora_r": 32})])
