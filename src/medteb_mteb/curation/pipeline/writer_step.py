"""Base class of the steps that have the pipeline's LLM write texts, and the forecast of their cost."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.budget import tokens_of
from medteb_mteb.curation.llm.config import LLM  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.base import PipelineStep
from medteb_mteb.curation.pipeline.work import Charge, StepOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm import Cost, Prompt
    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, Volume

__all__ = ["WriterStep", "charge_like", "charge_of", "outcome_of", "text_of_mean_length"]


class WriterStep(PipelineStep):
    """A step that asks the pipeline's LLM."""

    ASKS = True
    PASSING: ClassVar[frozenset[str]] = frozenset({"llm"})
    llm: LLM | None = Field(default=None, description="default: that of the pipeline")

    @abstractmethod
    def prompts(self) -> str:
        """Return the version of its prompts."""

    @abstractmethod
    def settings(self) -> Any:
        """Return its settings in the form that its function takes.

        Raises:
            BuildError: The settings are invalid.
        """

    def writer(self, pipeline: PipelineSettings) -> LLM:
        """Return the LLM: its own, or that of the pipeline.

        Raises:
            BuildError: Neither names an LLM.
        """
        llm = self.llm or pipeline.llm
        if llm is None:
            raise BuildError(f"Step {self.name!r} needs an LLM; give 'llm', or the path of its file.")
        return llm

    def llms(self, pipeline: PipelineSettings) -> tuple[LLM, ...]:
        """Return the LLM that writes."""
        return (self.writer(pipeline),)

    def depends_on(self, pipeline: PipelineSettings) -> Any:
        """Return the LLM's settings, without its address and limits."""
        return self.writer(pipeline).settings(self.prompts())

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Check that there is an LLM and that the settings are possible."""
        del inputs
        self.writer(pipeline)
        self.settings()

    def asking(self, job: StepJob) -> dict[str, Any]:
        """Return the arguments common to all functions that ask an LLM."""
        return {
            "llm": self.writer(job.pipeline),
            "journal": job.build.answers,
            "retry_failed": job.retry_failed,
            "show_progress": job.show_progress,
        }


def outcome_of(job: StepJob, report: Any) -> StepOutcome:
    """Return the outcome of a report, and say its notes.

    Args:
        job: Receives the notes.
        report: Report with `notes`, `stopped` and `to_json`.
    """
    for note in report.notes:
        job.say(note)
    return StepOutcome(report.to_json(), report.stopped)


def charge_of(llm: LLM, cost: Cost) -> list[Charge]:
    """Return the charge of requests that were counted."""
    return [Charge(llm.name, cost.requests, cost.tokens_in, cost.tokens_out, cost.cost, cost.known)]


def charge_like(llm: LLM, prompt: Prompt, requests: int) -> list[Charge]:
    """Return the charge of a number of requests like the given one, for texts that do not exist yet."""
    tokens_in = requests * (tokens_of(prompt.system) + tokens_of(prompt.user))
    tokens_out = requests * prompt.answer_tokens
    return [Charge(llm.name, requests, tokens_in, tokens_out, llm.cost(tokens_in, tokens_out), exact=False)]


def text_of_mean_length(volume: Volume) -> str:
    """Return a text of the mean length of some texts: a Chinese character is counted as a token."""
    return "字" * math.ceil(volume.tokens / max(1, volume.items))
