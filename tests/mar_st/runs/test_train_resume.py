"""A killed run gives the same weights as one that was not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from mar_st.recipes.load import load_recipe
from mar_st.runs.train import train
from mar_st.stages.fit import _Records
from tests.mar_st.train_helpers import LORA, silent, weights

pytestmark = pytest.mark.usefixtures("one_thread")


class _Killed(BaseException):
    """Stands for the end of the process: nothing in a training loop may catch it."""


def _die_after_step(step):
    original = _Records.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise _Killed
        original(self, args, state, control, **kwargs)

    return on_step_end


RESUMED = [
    pytest.param("01-query-init", [], id="query-init-learnt-temperature", marks=pytest.mark.slow),
    pytest.param("02-document-init", [], id="document-init-matryoshka", marks=pytest.mark.slow),
    pytest.param("03-align", [], id="align"),
    pytest.param("04-joint", [], id="joint"),
    pytest.param("04-joint", LORA, id="joint-lora", marks=pytest.mark.slow),
]


@pytest.mark.thorough(but=["joint"])
@pytest.mark.parametrize(("stage", "overrides"), RESUMED)
def test_resumed_equals_uninterrupted(
    finished, unfinished, recipe_file, monkeypatch, tmp_path, stage, overrides
):
    recipe = load_recipe(recipe_file, overrides)
    out = unfinished(stage)
    expected = finished
    if overrides:
        pytest.importorskip("peft", reason="LoRA needs the train extra")
        expected = tmp_path / "expected"
        shutil.copytree(out, expected)
        train(recipe, expected, save_steps=1000, say=silent)
    with monkeypatch.context() as patch:
        patch.setattr(_Records, "on_step_end", _die_after_step(7))
        with pytest.raises(_Killed):
            train(recipe, out, save_steps=3, say=silent)
    assert [path.name for path in (out / stage / "checkpoints").iterdir()] == ["checkpoint-6"]
    started = []
    original = _Records.on_train_begin

    def on_train_begin(self, args, state, control, **kwargs):
        started.append(state.global_step)
        original(self, args, state, control, **kwargs)

    monkeypatch.setattr(_Records, "on_train_begin", on_train_begin)
    # A killed run may be started again with other settings for its checkpoints.
    train(recipe, out, save_steps=1000, say=silent)
    assert started[0] == 6
    assert weights(out / stage / "model") == weights(expected / stage / "model")
    assert weights(out / "model") == weights(expected / "model")
    rows = [json.loads(line)["step"] for line in (out / stage / "metrics.jsonl").open()]
    assert rows == sorted(rows)


@pytest.mark.thorough
def test_resuming_after_the_last_step_only_saves(finished, unfinished, recipe_file, monkeypatch):
    out = unfinished("04-joint")

    def on_train_end(self, args, state, control, **kwargs):
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(_Records, "on_train_end", on_train_end)
        with pytest.raises(_Killed):
            train(load_recipe(recipe_file), out, save_steps=3, say=silent)
    train(load_recipe(recipe_file), out, save_steps=3, say=silent)
    assert weights(out / "model") == weights(finished / "model")


@pytest.mark.thorough
def test_a_partly_written_checkpoint_is_skipped(finished, unfinished, recipe_file, monkeypatch):
    from transformers import Trainer

    out = unfinished("04-joint")
    original = Trainer._save_optimizer_and_scheduler

    def save(self, output_dir):
        if self.state.global_step == 6:
            raise _Killed
        original(self, output_dir)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save_optimizer_and_scheduler", save)
        with pytest.raises(_Killed):
            train(load_recipe(recipe_file), out, save_steps=3, say=silent)
    names = {path.name for path in (out / "04-joint" / "checkpoints").iterdir()}
    assert names == {"checkpoint-3", "checkpoint-6"}
    train(load_recipe(recipe_file), out, save_steps=1000, say=silent)
    assert weights(out / "model") == weights(finished / "model")


KILLED_PROCESS = """
import os, signal, sys
from mar_st.recipes.load import load_recipe
from mar_st.stages.fit import _Records
from mar_st.runs.train import train

original = _Records.on_step_end

def on_step_end(self, args, state, control, **kwargs):
    if stage in str(self.path) and state.global_step == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    original(self, args, state, control, **kwargs)

recipe, out, stage = sys.argv[1:]
_Records.on_step_end = on_step_end
train(load_recipe(recipe), out, save_steps=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_processes_resume_to_the_same_weights(recipe_file, tmp_path):
    def start(out, stage):
        command = [sys.executable, "-c", KILLED_PROCESS, str(recipe_file), str(out), stage]
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    whole = start(tmp_path / "whole", "no such stage")
    assert whole.returncode == 0, whole.stderr
    out = tmp_path / "killed"
    for stage in ("align", "joint"):
        assert start(out, f"-{stage}").returncode == -signal.SIGKILL
        (checkpoint,) = next(out.glob(f"*-{stage}/checkpoints")).iterdir()
        assert checkpoint.name == "checkpoint-8"
    last = start(out, "no such stage")
    assert last.returncode == 0, last.stderr
    assert weights(out / "model") == weights(tmp_path / "whole" / "model")
    cards = [
        (folder / "model" / "README.md").read_text(encoding="utf-8") for folder in (tmp_path / "whole", out)
    ]
    assert cards[0] == cards[1]  # the last loss included
