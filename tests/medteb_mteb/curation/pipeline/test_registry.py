"""A step is one class in one file: fields, checks, run and forecast are taken from the class alone."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline import registry, steps
from medteb_mteb.curation.pipeline.base import Input, Step, Texts
from medteb_mteb.curation.pipeline.work import Charge, Outcome, Volume

CLEAN = {"step": "anonymize", "name": "clean", "in": "queries.jsonl"}
SHORTEN = '''
"""Step `shorten`: cuts texts."""

from __future__ import annotations

import json

from pydantic import Field

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.base import Step, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import Outcome, Volume


@step("shorten", after="dedup")
class Shorten(Step):
    """Options of a shorten step."""

    WRITES = "texts"
    RESULT = "texts.jsonl"
    ATOMIC = True
    source: Texts = Field(alias="in")
    length: int = Field(default=4, ge=1)

    def check(self, pipeline, inputs):
        if self.length == 13:
            raise BuildError(f"Step {self.name!r}: 13 is unlucky.")

    def run(self, job):
        job.folder.mkdir(parents=True)
        texts = job.texts("in")
        rows = [json.dumps({"_id": id, "text": text.text[: self.length]}) for id, text in texts.items()]
        (job.folder / self.RESULT).write_text("\\n".join(rows) + "\\n")
        return Outcome({"read": len(rows), "kept": len(rows)})

    def forecast_volume(self, view):
        items = view.volume("in").items
        return Volume(items, items * self.length, exact=False)
'''


@pytest.fixture
def registering(monkeypatch):
    """Forgets the steps that a test registers."""
    monkeypatch.setattr(registry, "_CLASSES", dict(registry.registered()))
    monkeypatch.setattr(registry, "_AFTER", dict(registry._AFTER))


@pytest.fixture
def shorten(registering, tmp_path, monkeypatch):
    """The step `shorten`, added by a file among the steps."""
    folder = tmp_path / "more-steps"
    folder.mkdir()
    (folder / "shorten.py").write_text(SHORTEN)
    monkeypatch.setattr(steps, "__path__", [*steps.__path__, str(folder)])
    yield
    sys.modules.pop(f"{steps.__name__}.shorten", None)
    vars(steps).pop("shorten", None)


def test_a_new_file_is_a_new_step(shorten, write, medteb, quiet, tmp_path):
    both = [CLEAN, {"step": "shorten", "in": "clean"}]
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


def test_a_new_step_is_validated_and_checked(shorten, write, quiet, tmp_path):
    def refused(match, **step):
        with pytest.raises(BuildError, match=match):
            quiet(write(steps=[CLEAN, {"in": "clean", **step}]))

    refused(
        r"steps\.1\.shorten\.length: Input should be greater than or equal to 1", step="shorten", length=0
    )
    refused(r"steps\.1\.shorten\.long: Extra inputs", step="shorten", long=2)
    refused("13 is unlucky", step="shorten", length=13)
    refused(r"there is 'anonymize', 'dedup', .*'shorten'", step="shortened")
    assert not (tmp_path / "build").exists()


def test_requests_and_texts_of_a_new_step_are_looked_at(registering, write, quiet):
    @registry.step("comment")
    class Comment(Step):
        """Sends texts under a key of its own."""

        WRITES = "file"
        ASKS = True
        remarks: Texts
        names: Annotated[str | None, Input(("file",))] = None

        def run(self, job):
            job.folder.mkdir()
            return Outcome()

        def forecast_charges(self, view):
            requests = view.volume("remarks").items
            return [Charge("commentator", requests, 10 * requests, requests, 0.5)]

    raw = write(steps=[{"step": "comment", "remarks": "queries.jsonl", "names": "documents.jsonl"}])
    with pytest.raises(BuildError, match=r"Step 'comment' sends remarks of .*queries\.jsonl to an LLM"):
        quiet(raw)
    path = write(steps=[CLEAN, {"step": "comment", "remarks": "clean", "names": "documents.jsonl"}])
    found = building.forecast(path).to_json()
    assert (found["requests"], found["tokens_in"], found["cost"]) == (36, 360, 0.5)
    assert quiet(path).complete


def test_a_name_is_registered_once(registering):
    class Again(Step):
        WRITES = "texts"

        def run(self, job):
            return Outcome()

    with pytest.raises(ValueError, match=r"two steps 'dedup': medteb_mteb\.curation\.pipeline\.steps\.dedup"):
        registry.step("dedup")(Again)
    assert registry.registered()["dedup"] is not Again


def test_a_class_without_a_run_is_no_step(registering):
    class Idle(Step):
        WRITES = "texts"

    class Mute(Step):
        def run(self, job):
            return Outcome()

    for cls in (Idle, Mute):
        with pytest.raises(TypeError, match=f"Step 'idle': {cls.__name__} has to define 'WRITES' and 'run'"):
            registry.step("idle")(cls)
    assert "idle" not in registry.registered()


def test_steps_are_listed_in_the_order_of_a_build(registering):
    before = list(registry.registered())
    assert before[:6] == ["anonymize", "dedup", "diversify", "pool", "judge", "consensus"]

    @registry.step("extra", after="round-trip")
    class Extra(Step):
        WRITES = "texts"

        def run(self, job):
            return Outcome()

        def forecast_volume(self, view):
            return Volume(0)

    assert list(registry.registered()) == [*before, "extra"]
