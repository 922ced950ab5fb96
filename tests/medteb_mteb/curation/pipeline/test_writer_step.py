"""Steps that have an LLM write texts: their LLM, what their output depends on, and the cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm import Cost, Prompt
from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.pipeline.settings import PipelineSettings
from medteb_mteb.curation.pipeline.work import StepJob, Volume, Workspace
from medteb_mteb.curation.pipeline.writer_step import (
    WriterStep,
    charge_like,
    charge_of,
    outcome_of,
    text_of_mean_length,
)


class LetterStep(WriterStep):
    """Writes letters."""

    WRITES = "pairs"
    letters: int = 1
    version: str = "v1"

    def prompts(self):
        return self.version

    def settings(self):
        if self.letters < 1:
            raise BuildError(f"letters is at least 1; got {self.letters}.")
        return self.letters

    def run(self, job):
        raise AssertionError("not run here")


def llm(name="w", **settings):
    return LLM(**{"name": name, "model": name, "base_url": "http://127.0.0.1:9/v1", **settings})


def step(**settings):
    return LetterStep(step="letters", **settings)


@pytest.fixture
def job(tmp_path):
    said = []
    settings = PipelineSettings(llm=llm(), answers="journals/answers.sqlite")
    workspace = Workspace(settings, tmp_path, tmp_path / "build")
    return StepJob(workspace, {}, {}, tmp_path / "build" / "letters", True, False, said.append), said


def test_the_llm_of_a_step_comes_before_that_of_the_pipeline():
    pipeline = PipelineSettings(llm=llm("common"))
    assert [one.name for one in step().llms(pipeline)] == ["common"]
    assert [one.name for one in step(llm=llm("own")).llms(pipeline)] == ["own"]
    assert step(llm=llm("own")).writer(PipelineSettings()).name == "own"


def test_a_step_without_an_llm_or_with_impossible_settings_is_refused():
    with pytest.raises(BuildError, match="Step 'greetings' needs an LLM; give 'llm', or the path"):
        step(name="greetings").check(PipelineSettings(), {})
    with pytest.raises(BuildError, match="letters is at least 1; got 0"):
        step(letters=0).check(PipelineSettings(llm=llm()), {})
    step(letters=2).check(PipelineSettings(llm=llm()), {})


@pytest.mark.parametrize(
    ("llm_settings", "step_settings", "same"),
    [
        ({"base_url": "https://other.example/v1", "concurrency": 2, "budget_tokens": 9}, {}, True),
        ({"model": "larger"}, {}, False),
        ({"temperature": 1.0}, {}, False),
        ({"extra": {"top_p": 0.5}}, {}, False),
        ({}, {"version": "v2"}, False),
    ],
)
def test_the_output_depends_on_model_and_prompts_but_not_on_address_and_limits(
    llm_settings, step_settings, same
):
    before = step().depends_on(PipelineSettings(llm=llm()))
    after = step(**step_settings).depends_on(PipelineSettings(llm=llm(**llm_settings)))
    assert (before == after) == same


def test_requests_go_to_the_journal_of_the_pipeline_and_are_retried_on_demand(job, tmp_path):
    asked = step(llm=llm("own")).asking(job[0])
    assert asked["llm"].name == "own"
    assert asked["journal"] == tmp_path / "journals" / "answers.sqlite"
    assert (asked["retry_failed"], asked["show_progress"]) == (True, False)


def test_the_notes_of_a_report_are_said_and_its_end_is_passed_on(job):
    report = SimpleNamespace(notes=["one", "two"], stopped="budget spent", to_json=lambda: {"kept": 3})
    outcome = outcome_of(job[0], report)
    assert (outcome.result, outcome.stopped) == ({"kept": 3}, "budget spent")
    assert job[1] == ["one", "two"]


def test_counted_requests_are_exact_and_requests_like_a_prompt_are_not():
    priced = llm(price_in=2e6, price_out=1e6)
    cost = Cost(9, 4, 0, 5, tokens_in=70, tokens_out=30, cost=0.5, spent=0.1, budget=None)
    (counted,) = charge_of(priced, cost)
    assert (counted.name, counted.requests, counted.known, counted.cost) == ("w", 5, 4, 0.5)
    assert (counted.tokens_in, counted.tokens_out, counted.exact) == (70, 30, True)
    prompt = Prompt("k", "你写信。", "给患者写一封信。", {}, 20)
    (one,), (seven,) = (charge_like(priced, prompt, requests) for requests in (1, 7))
    assert (one.tokens_in, one.tokens_out, one.exact) == (12, 20, False)
    assert one.cost == 2 * 12 + 20
    assert (seven.requests, seven.tokens_in, seven.tokens_out) == (7, 7 * 12, 7 * 20)
    assert seven.cost == pytest.approx(7 * one.cost)


@pytest.mark.parametrize(
    ("volume", "tokens"), [(Volume(4, 40), 10), (Volume(4, 41), 11), (Volume(0, 0), 0), (Volume(3, 1), 1)]
)
def test_a_text_of_mean_length_has_the_mean_number_of_tokens_rounded_up(volume, tokens):
    assert tokens_of(text_of_mean_length(volume)) == tokens
