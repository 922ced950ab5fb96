"""Step `triples`: has an LLM sort pooled documents into positives and negatives to train on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.pipeline.base import Input, Texts
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
from medteb_mteb.curation.training import TwoLists, estimate_triples, make_triples
from medteb_mteb.curation.training.prompt import prompt_version, render

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import Charge, StepJob, StepOutcome, StepView


@step("triples", after="sts")
class TriplesStep(WriterStep, TrainingStep):
    """Options of a triples step, as of `medteb triples`."""

    WRITES = "triples"
    queries: Texts
    documents: Texts
    pools: Annotated[str, Input(("pools",))]
    depth: int = Field(default=50, ge=1)
    documents_per_prompt: int = Field(default=10, ge=1)
    prompt_tokens: int = 16_000
    control_rate: float = Field(default=1.0, ge=0, le=1)
    negatives: int = Field(default=15, ge=0)
    choose: Literal["top", "random"] = "top"
    seed: int = 42

    def prompts(self) -> str:
        """Return the version of its prompts."""
        return prompt_version()

    def settings(self) -> TwoLists:
        """Return the settings of `medteb_mteb.curation.training.make_triples`."""
        return TwoLists(
            depth=self.depth,
            documents=self.documents_per_prompt,
            prompt_tokens=self.prompt_tokens,
            control_rate=self.control_rate,
            negatives=self.negatives,
            choose=self.choose,
            seed=self.seed,
        )

    def run(self, job: StepJob) -> StepOutcome:
        """Ask the LLM, and write the triples."""
        report = make_triples(
            job.path("queries"),
            job.path("documents"),
            job.path("pools"),
            job.folder,
            how=self.settings(),
            held_out=held_out(self, job.inputs, self.threshold),
            already_anonymous=job.pipeline.already_anonymous,
            **self.asking(job),
        )
        return outcome_of(job, report)

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every query gives a triple."""
        return Volume(view.volume("queries").items, exact=False)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Estimate the requests; exact once the pools exist."""
        llm = self.writer(view.pipeline)
        if view.ready:
            cost = estimate_triples(
                view.path("queries"),
                view.path("documents"),
                view.path("pools"),
                view.folder,
                llm,
                self.settings(),
                held_out=held_out(self, view.paths, self.threshold),
                journal=view.build.answers,
                retry_failed=view.retry_failed,
            )
            return charge_of(llm, cost)
        pools, document = view.volume("pools"), text_of_mean_length(view.volume("documents"))
        each = min(self.depth, math.ceil(pools.items / max(1, pools.queries)))
        shown = min(self.documents_per_prompt, each, max(1, self.prompt_tokens // (len(document) + 1)))
        # Every prompt may carry a control document.
        like = render("x 0", text_of_mean_length(view.volume("queries")), [document] * (shown + 1))
        return charge_like(llm, like, pools.queries * math.ceil(each / max(1, shown)))
