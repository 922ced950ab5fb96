"""Launches of training: how they are recognised, and what they cannot train."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from mar_st.planning import launch as module
from mar_st.planning.launch import Launch
from tests.mar_st.stages.helpers import stage


@pytest.fixture
def deepspeed(tmp_path, monkeypatch):
    """Writes a DeepSpeed configuration and returns a launch with it."""
    monkeypatch.setattr(module, "find_spec", lambda name: name)

    def write(content):
        path = tmp_path / "deepspeed.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return Launch(deepspeed=path)

    return write


def test_a_launch_is_recognised_by_its_environment(monkeypatch):
    for name in ("WORLD_SIZE", "MAR_DEEPSPEED"):
        monkeypatch.delenv(name, raising=False)
    assert Launch.here() == Launch(1, None)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("MAR_DEEPSPEED", "zero.json")
    assert (Launch.here().world, str(Launch.here().deepspeed)) == (4, "zero.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a readable DeepSpeed configuration"),
        ({"zero_optimization": {"stage": 3}}, "asks for ZeRO stage 3"),
        ({"optimizer": {}}, "has the section 'optimizer'"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(deepspeed, content, message):
    with pytest.raises(MarError, match=message):
        _ = deepspeed(content).zero


def test_devices_share_a_batch_and_zero_2_allows_one_backward_pass(deepspeed):
    Launch(4).check(stage("joint"))
    with pytest.raises(MarError, match="Choose a multiple of 3"):
        Launch(3).check(stage("joint"))
    with pytest.raises(MarError, match="multiple of 16"):
        Launch(4).check(stage("joint", gradient_accumulation=4))
    deepspeed({"zero_optimization": {"stage": 2}}).check(stage("joint"))
    for fields in ({"mini_batch_size": 2}, {"mini_batch_tokens": 64}, {"gradient_accumulation": 2}):
        with pytest.raises(MarError, match="ZeRO 2"):
            deepspeed({"zero_optimization": {"stage": 2}}).check(stage("joint", **fields))
        deepspeed({"zero_optimization": {"stage": 1}}).check(stage("joint", **fields))
