"""A step is one class in one file: fields, checks, run and forecast are taken from the class alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from medteb_mteb.cli import app
from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline import registry, steps
from medteb_mteb.curation.pipeline.base import Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.work import Charge, StepOutcome, Volume

CLEAN = {"step": "anonymize", "name": "clean", "in": "queries.jsonl"}
#: Steps whose command is not called as they are.
COMMANDS = {
    "review": ["review", "export"],
    "synthesize-queries": ["synthesize", "queries"],
    "synthesize-tasks": ["synthesize", "tasks"],
}


@pytest.fixture
def registering(monkeypatch):
    """Forgets the steps that a test registers."""
    monkeypatch.setattr(registry, "_CLASSES", dict(registry.registered()))
    monkeypatch.setattr(registry, "_LISTED_AFTER", dict(registry._LISTED_AFTER))


@pytest.fixture
def shorten(registering, tmp_path, monkeypatch):
    """The example of the documentation, added as a file among the steps."""
    page = (Path(__file__).parents[4] / "docs/concepts/architecture.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (example,) = [text for text in examples if "@step(" in text]
    folder = tmp_path / "more-steps"
    folder.mkdir()
    (folder / "shorten.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(steps, "__path__", [*steps.__path__, str(folder)])
    yield
    sys.modules.pop(f"{steps.__name__}.shorten", None)
    vars(steps).pop("shorten", None)


@pytest.mark.thorough
def test_one_file_adds_a_step(shorten, write, medteb, quiet, tmp_path):
    both = [CLEAN, {"step": "shorten", "in": "clean", "length": 4}]
    path = write(steps=[*both, {"step": "dedup", "in": "shorten"}])
    code, out, err = medteb("build", path, "--dry-run")
    assert code == 0, err
    assert "shorten  to do     shorten: at most 36 texts" in out
    first = building.forecast(path).steps
    assert [step.writes.tokens for step in first[1:]] == [36 * 4, 36 * 4]
    report = quiet(path)
    assert [step.fate for step in report.steps] == ["made"] * 3
    rows = [json.loads(row) for row in (tmp_path / "build/shorten/texts.jsonl").read_text().splitlines()]
    assert {len(row["text"]) for row in rows} == {4}
    assert report.steps[2].result["read"] == 36
    assert [step.fate for step in building.forecast(path).steps] == ["finished"] * 3
    with pytest.raises(BuildError, match="Step 'shorten' was made with other settings"):
        quiet(write(steps=[CLEAN, {**both[1], "length": 5}]))


def test_a_new_step_is_validated(shorten, write, quiet, tmp_path):
    def refused(match, **step):
        with pytest.raises(BuildError, match=match):
            quiet(write(steps=[CLEAN, {"in": "clean", **step}]))

    refused(
        r"steps\.1\.shorten\.length: Input should be greater than or equal to 1", step="shorten", length=0
    )
    refused(r"steps\.1\.shorten\.long: Extra inputs", step="shorten", long=2)
    refused(r"choose from 'anonymize', 'dedup', .*'shorten'", step="shortened")
    assert not (tmp_path / "build").exists()


def test_a_new_step_has_its_inputs_checked_and_its_requests_counted(registering, write, quiet):
    @registry.step("comment")
    class Comment(PipelineStep):
        """Sends texts under a key of its own."""

        WRITES = "file"
        ASKS = True
        remarks: Texts
        names: Annotated[str | None, Input(("file",))] = None

        def check(self, pipeline, inputs):
            if inputs["remarks"][0].step != "clean":
                raise BuildError("remarks are taken from 'clean' alone")

        def run(self, job):
            job.folder.mkdir()
            return StepOutcome()

        def forecast_charges(self, view):
            requests = view.volume("remarks").items
            return [Charge("commentator", requests, 10 * requests, requests, 0.5)]

    with pytest.raises(BuildError, match="remarks are taken from 'clean' alone"):
        quiet(write(steps=[{"step": "comment", "remarks": "queries.jsonl"}]))
    raw = {"step": "dedup", "name": "clean", "in": "queries.jsonl"}
    with pytest.raises(BuildError, match="Step 'comment' sends remarks of clean to an LLM"):
        quiet(write(steps=[raw, {"step": "comment", "remarks": "clean", "names": "documents.jsonl"}]))
    path = write(steps=[CLEAN, {"step": "comment", "remarks": "clean", "names": "documents.jsonl"}])
    forecast = building.forecast(path).to_json()
    assert (forecast["requests"], forecast["tokens_in"], forecast["cost"]) == (36, 360, 0.5)
    assert quiet(path).complete


def test_a_name_is_registered_once(registering):
    class TransientError(PipelineStep):
        WRITES = "texts"

        def run(self, job):
            return StepOutcome()

    with pytest.raises(ValueError, match=r"two steps 'dedup': medteb_mteb\.curation\.pipeline\.steps\.dedup"):
        registry.step("dedup")(TransientError)
    assert registry.registered()["dedup"] is not TransientError


def test_a_class_without_a_run_method_is_refused(registering):
    class Idle(PipelineStep):
        WRITES = "texts"

    class Mute(PipelineStep):
        def run(self, job):
            return StepOutcome()

    for cls in (Idle, Mute):
        with pytest.raises(TypeError, match=f"Step 'idle': {cls.__name__} must define 'WRITES' and 'run'"):
            registry.step("idle")(cls)
    assert "idle" not in registry.registered()


def test_steps_are_listed_in_the_order_of_a_build(registering):
    before = list(registry.registered())
    assert before[:6] == ["anonymize", "dedup", "diversify", "pool", "judge", "consensus"]

    @registry.step("extra", after="round-trip")
    class Extra(PipelineStep):
        WRITES = "texts"

        def run(self, job):
            return StepOutcome()

        def forecast_volume(self, view):
            return Volume(0)

    assert list(registry.registered()) == [*before, "extra"]


def test_options_have_the_defaults_of_the_commands():
    compared = 0
    for name, cls in registry.registered().items():
        command = typer.main.get_command(app)
        for word in COMMANDS.get(name, [name]):
            command = command.commands[word]
        defaults = {one.name: one.default for one in command.params}
        given = {
            key: field.default
            for key, field in cls.model_fields.items()
            if key in defaults and key != "name" and isinstance(field.default, int | float | str)
        }
        assert (name, given) == (name, {key: defaults[key] for key in given})
        compared += len(given)
    assert compared > 40
