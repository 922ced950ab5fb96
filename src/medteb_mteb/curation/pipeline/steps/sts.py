"""Step `sts`: makes an STS edition from queries and a dictionary of synonyms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.files.sources import TextSource  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.base import Input, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import held_out, queries_trained_on
from medteb_mteb.curation.pipeline.work import StepOutcome
from medteb_mteb.curation.pipeline.writer_step import WriterStep, charge_like, charge_of, text_of_mean_length
from medteb_mteb.curation.sts import DictionaryEntry, StsSettings, estimate, sts
from medteb_mteb.curation.sts.prompt import prompt_version, render
from medteb_mteb.curation.sts.select import SwappedQuery

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import Charge, StepJob, StepView


@step("sts", after="assemble")
class StsStep(WriterStep):
    """Options of an sts step, as of `medteb sts`."""

    WRITES = "editions"
    # Its answers are in the journal; its output is made from them again.
    ATOMIC = True
    TASKS = ("MedTEBSTS",)
    TRAINS = True
    dictionary: Annotated[str, Input(("file",))]
    queries: Texts
    edition: str = Field(min_length=1, description="name of the edition")
    licence: str = Field(min_length=1)
    version: str = "1.0.0"
    test: float = Field(default=0.2, gt=0)
    probabilities: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    tolerance: float = Field(default=0.3, ge=0, lt=1)
    per_entry: int | None = Field(default=None, ge=1)
    limit: int | None = Field(default=None, ge=1)
    against: Annotated[tuple[str, ...], Input(("triples", "pairs", "alignment"))] = ()
    threshold: float = Field(default=0.6, gt=0, le=1)
    seed: int = 42
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    sources: tuple[TextSource, ...] | None = None

    def prompts(self) -> str:
        """Return the version of its prompts."""
        return prompt_version()

    def settings(self) -> StsSettings:
        """Return the settings of `medteb_mteb.curation.sts.sts`."""
        return StsSettings(
            self.edition,
            self.licence,
            self.version,
            self.test,
            self.probabilities,
            self.tolerance,
            self.per_entry,
            self.limit,
            self.threshold,
            self.seed,
        )

    def run(self, job: StepJob) -> StepOutcome:
        """Have the LLM rewrite queries, and write the edition."""
        report = sts(
            job.path("dictionary"),
            job.path("queries"),
            job.folder,
            how=self.settings(),
            already_anonymous=job.pipeline.already_anonymous,
            training_queries=queries_trained_on(job),
            held_out=held_out(self, job.inputs, self.threshold),
            sources=self.sources or (),
            **self.asking(job),
        )
        content = report.to_json()
        if "edition" in content:
            content["editions"] = {self.TASKS[0]: content.pop("edition")}
        return StepOutcome(content, report.stopped)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Estimate the requests; exact once the queries exist, before that one for every query."""
        llm = self.writer(view.pipeline)
        if view.ready:
            estimated = estimate(
                view.path("dictionary"),
                view.path("queries"),
                view.folder,
                llm,
                self.settings(),
                journal=view.build.answers,
                retry_failed=view.retry_failed,
            )
            return charge_of(llm, estimated.cost)
        queries = view.volume("queries")
        query = text_of_mean_length(queries)
        like = SwappedQuery(Text("x", query), DictionaryEntry("字" * 4, "词" * 4), query)
        requests = min(queries.items, self.limit or queries.items)
        return charge_like(llm, render(like, self.tolerance), requests)
