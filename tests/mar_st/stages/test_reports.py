from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from mar_st.recipes.load import load_recipe
from mar_st.runs.train import train
from mar_st.stages.reports import ReportError, RunCallback, check_callbacks, check_reports
from tests.mar_st.train_helpers import silent


class Heard(TrainerCallback):
    """Keeps the runs and the losses that it hears of."""

    runs: ClassVar[list[str]] = []
    losses: ClassVar[list[float]] = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.runs.append(args.run_name)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs["loss"]] if logs and "loss" in logs else []


class Absent(TrainerCallback):
    """A tracker whose package is not there."""

    def __init__(self):
        raise RuntimeError("Absent requires absent to be installed. Run `pip install absent`.")


@pytest.fixture
def trackers(monkeypatch):
    monkeypatch.setattr(Heard, "runs", [])
    monkeypatch.setattr(Heard, "losses", [])
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "heard", Heard)
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "wandb", Heard)
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "absent", Absent)


@pytest.fixture
def short(recipe_file):
    torch.set_num_threads(1)
    return load_recipe(recipe_file, ["stages.query-init.max_steps=2", "stages.document-init.max_steps=2"])


@pytest.mark.thorough
def test_trackers_record_every_stage(short, tmp_path, trackers, monkeypatch):
    ended = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=object(), finish=lambda: ended.append(1)))
    train(short, tmp_path / "run", say=silent, until="document-init", report_to=["wandb"])
    assert Heard.runs == ["run/01-query-init", "run/02-document-init"]
    assert len(Heard.losses) == 2
    assert len(ended) == 2  # or the second stage would be drawn into the first one's run


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Heard, Heard()])
def test_callbacks_are_called_in_every_stage(short, tmp_path, trackers, kind):
    train(short, tmp_path / "run", say=silent, until="document-init", callbacks=[kind])
    assert Heard.runs == ["run/01-query-init", "run/02-document-init"]
    metrics = (tmp_path / "run" / "01-query-init" / "metrics.jsonl").read_text(encoding="utf-8")
    assert Heard.losses[0] == next(r["loss"] for r in map(json.loads, metrics.splitlines()) if "loss" in r)


class Events(RunCallback):
    """Keeps the order of events, within and outside trainers."""

    def __init__(self):
        self.events = []

    def on_stage_begin(self, stage, folder):
        self.events.append(("begin", stage.name, folder.name, (folder / "model").exists()))

    def on_train_begin(self, args, state, control, **kwargs):
        self.events.append(("train", args.run_name))

    def on_stage_end(self, stage, folder):
        self.events.append(("end", stage.name, folder.name, (folder / "model").exists()))


def test_run_callbacks_receive_the_begin_and_end_of_trained_stages(short, tmp_path):
    first, second = Events(), Events()
    train(short, tmp_path / "run", say=silent, until="query-init", callbacks=[first])
    train(short, tmp_path / "run", say=silent, until="document-init", callbacks=[second])
    for heard, name in ((first, "query-init"), (second, "document-init")):
        folder = f"{1 if heard is first else 2:02d}-{name}"
        assert heard.events == [
            ("begin", name, folder, False), ("train", f"run/{folder}"), ("end", name, folder, True)
        ]  # fmt: skip


def test_a_class_of_run_callbacks_is_refused():
    with pytest.raises(ReportError, match=r"pass an instance, Events\(\)"):
        check_callbacks([Events])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("absent", "report_to absent: Absent requires absent"),
        (["heard", "weird"], "No tracker 'weird'"),
        ("tensorbord", "Did you mean 'tensorboard'"),
    ],
)
def test_a_tracker_that_is_not_there_is_refused_before_training(short, tmp_path, trackers, names, message):
    with pytest.raises(ReportError, match=message):
        train(short, tmp_path / "run", say=silent, report_to=names)
    assert not (tmp_path / "run").exists()


def test_repeated_names_are_kept_once(trackers):
    assert check_reports(["heard", "heard"]) == ("heard",)
    assert check_reports(None) == check_reports(()) == ()


def test_objects_other_than_callbacks_are_refused():
    with pytest.raises(ReportError, match="got dict"):
        check_callbacks([{}])
