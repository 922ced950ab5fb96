"""Batches from worker processes are those of the training process."""

from __future__ import annotations

import os

import pytest
import torch

from mar_st.cli import app
from mar_st.data import Source
from mar_st.recipes.schema import AlignStage, Data
from mar_st.stages import loading
from mar_st.stages.align import train_align
from mar_st.stages.batches import RecordingCollator
from mar_st.stages.monitor import MetricsFile
from tests.mar_st.stages.helpers import WORDS, mar, settings
from tests.mar_st.stages.trainer_helpers import encoder, equal, pairs, train, weights

OPTIONS = {
    "token_dropout": 0.3, "length_groups": 2, "batches": "mixed", "epochs": 3, "max_steps": None,
}  # fmt: skip


class _Killed(Exception):  # noqa: N818
    pass


@pytest.fixture
def collators(monkeypatch, tmp_path):
    """Process of every call of a collator."""
    call = RecordingCollator.__call__

    def noted(self, features):
        with (tmp_path / "collators").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        return call(self, features)

    monkeypatch.setattr(RecordingCollator, "__call__", noted)

    def processes():
        content = (tmp_path / "collators").read_text().split()
        (tmp_path / "collators").unlink()
        return {int(process) for process in content}

    return processes


def run(folder, workers):
    data = {"a": pairs(24), "b": pairs(20, salt=5)}
    return train(
        folder, model=encoder(0.2), data=data, settings={"save_steps": 2, "workers": workers}, **OPTIONS
    )


@pytest.mark.slow
def test_workers_change_no_weight_and_a_killed_run_resumes(tmp_path, monkeypatch, collators):
    expected = weights(run(tmp_path / "none", 0))
    assert collators() == {os.getpid()}
    assert equal(weights(run(tmp_path / "two", 2)), expected)
    assert os.getpid() not in collators()

    def die(self, args, state, control, **kwargs):
        if state.global_step == 9:  # in the second epoch
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step_end", die, raising=False)
        with pytest.raises(_Killed):
            run(tmp_path / "killed", 2)
    assert equal(weights(run(tmp_path / "killed", 2)), expected)
    assert not equal(expected, weights(encoder(0.2)))


@pytest.mark.thorough
def test_workers_read_stored_vectors(tmp_path):
    texts = [f"{a}{b}怎么办" for a in WORDS for b in WORDS]
    sources = [Source(Data(name="texts", path="-", form="texts", role="query"), texts=texts)]
    stage = AlignStage(stage="align", name="align", batch_size=8, learning_rate=1e-3, max_steps=4)
    trained = []
    for workers in (0, 2):
        model = mar()
        train_align(model, sources, stage, settings(tmp_path / str(workers), workers=workers), {})
        trained.append(weights(model))
    assert equal(*trained)


def test_workers_are_used_by_default_only_with_a_gpu(monkeypatch):
    monkeypatch.setattr(loading.os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(loading, "_has_room", lambda: True)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert (loading.worker_count(None, cpu), loading.worker_count(3, cpu)) == (0, 3)
    assert (loading.worker_count(None, gpu), loading.worker_count(0, gpu)) == (4, 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert loading.worker_count(None, gpu) == 1
    monkeypatch.setattr(loading, "_has_room", lambda: False)
    assert loading.worker_count(None, gpu) == 0


def test_the_workers_option_of_train_reaches_the_recipe(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    recipes = []
    monkeypatch.setattr(
        "mar_st.runs.train.train", lambda recipe, out, **options: recipes.append(recipe) or out
    )
    outcome = CliRunner().invoke(app, ["train", "mar-mini", "--out", str(tmp_path), "--workers", "3"])
    assert outcome.exit_code == 0, outcome.output
    assert recipes[0].workers == 3
