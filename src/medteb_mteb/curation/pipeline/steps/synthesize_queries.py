"""Step `synthesize-queries`: has an LLM write queries that documents answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from medteb_mteb.curation.pipeline.base import Texts  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import TrainingStep, held_out
from medteb_mteb.curation.pipeline.work import Volume
from medteb_mteb.curation.pipeline.writer_step import (
    WriterStep,
    charge_like,
    charge_of,
    outcome_of,
    text_of_mean_length,
)
from medteb_mteb.curation.synthetic import QuerySettings, estimate_queries, synthesize_queries
from medteb_mteb.curation.synthetic.forms import draw_forms
from medteb_mteb.curation.synthetic.query_prompt import query_prompt, query_version

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import Charge, StepJob, StepOutcome, StepView


@step("synthesize-queries", after="pairs")
class SynthesizeQueriesStep(WriterStep, TrainingStep):
    """Options of a synthesize-queries step, as of `medteb synthesize queries`."""

    WRITES = "pairs"
    RESULT = "pairs.jsonl"
    documents: Texts
    language: Literal["zh", "en"] = "zh"
    per_document: int = Field(default=1, ge=1, le=20)
    forms: dict[str, float] | None = None
    shortest: int = Field(default=20, ge=1)
    longest: int = Field(default=4000, ge=100)
    sample: int | None = Field(default=None, ge=1)
    instruction: str = ""
    origin: str = Field(default="synthetic-queries", description="what the rows call their source")
    seed: int = 42

    def prompts(self) -> str:
        """Return the version of its prompts."""
        return query_version(self.language)

    def settings(self) -> QuerySettings:
        """Return the settings of `medteb_mteb.curation.synthetic.synthesize_queries`."""
        forms = {} if self.forms is None else {"forms": self.forms}
        return QuerySettings(
            language=self.language,
            per_document=self.per_document,
            shortest=self.shortest,
            longest=self.longest,
            sample=self.sample,
            seed=self.seed,
            source=self.origin,
            instruction=self.instruction,
            **forms,
        )

    def run(self, job: StepJob) -> StepOutcome:
        """Ask the LLM, and write the pairs."""
        report = synthesize_queries(
            job.path("documents"),
            job.folder,
            settings=self.settings(),
            held_out=held_out(self, job.inputs, self.threshold),
            already_anonymous=job.pipeline.already_anonymous,
            **self.asking(job),
        )
        return outcome_of(job, report)

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every query is kept."""
        documents = view.volume("documents").items
        return Volume(min(documents, self.sample or documents) * self.per_document, exact=False)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Estimate the requests; exact once the documents exist."""
        llm, settings = self.writer(view.pipeline), self.settings()
        if view.ready:
            cost = estimate_queries(
                view.path("documents"),
                view.folder,
                llm,
                settings,
                journal=view.build.answers,
                retry_failed=view.retry_failed,
            )
            return charge_of(llm, cost)
        documents = view.volume("documents")
        forms = draw_forms(settings.forms, self.per_document, "")
        text = text_of_mean_length(documents)[: self.longest]
        requests = min(documents.items, self.sample or documents.items)
        return charge_like(llm, query_prompt("x", text, forms, self.language), requests)
