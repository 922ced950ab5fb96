"""Step `synthesize-tasks`: has an LLM invent retrieval tasks, and examples of them to train on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.pipeline.base import Input
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import TrainingStep, held_out
from medteb_mteb.curation.pipeline.work import Volume
from medteb_mteb.curation.pipeline.writer_step import WriterStep, charge_of, outcome_of
from medteb_mteb.curation.synthetic import TaskSettings, estimate_tasks, synthesize_tasks
from medteb_mteb.curation.synthetic.task_prompts import brainstorm_version, example_version
from medteb_mteb.curation.synthetic.tasks import TASKS_FILE

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import Charge, StepJob, StepOutcome, StepView


@step("synthesize-tasks", after="synthesize-queries")
class SynthesizeTasksStep(WriterStep, TrainingStep):
    """Options of a synthesize-tasks step, as of `medteb synthesize tasks`."""

    WRITES = "triples"
    language: Literal["zh", "en"] = "zh"
    tasks: int = Field(default=20, ge=1)
    pairs_per_task: int = Field(default=10, ge=1)
    tasks_from: Annotated[str | None, Input(("file",))] = None
    origin: str = Field(default="synthetic-tasks", description="what the rows call their source")
    seed: int = 42

    def prompts(self) -> str:
        """Return the version of its prompts."""
        return f"{brainstorm_version(self.language)} {example_version(self.language)}"

    def settings(self) -> TaskSettings:
        """Return settings of `medteb_mteb.curation.synthetic.synthesize_tasks`, without the file of tasks."""
        return TaskSettings(
            language=self.language,
            tasks=self.tasks,
            pairs_per_task=self.pairs_per_task,
            seed=self.seed,
            source=self.origin,
        )

    def run(self, job: StepJob) -> StepOutcome:
        """Ask the LLM, and write the triples."""
        settings = self.settings()
        if self.tasks_from is not None:
            settings = replace(settings, tasks_from=job.path("tasks_from"))
        report = synthesize_tasks(
            job.folder,
            settings=settings,
            held_out=held_out(self, job.inputs, self.threshold),
            **self.asking(job),
        )
        return outcome_of(job, report)

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every example is kept."""
        del view
        return Volume(self.tasks * self.pairs_per_task, exact=False)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Estimate the requests; exact once the tasks exist."""
        llm, settings = self.writer(view.pipeline), self.settings()
        known = (view.folder / TASKS_FILE).is_file()
        if self.tasks_from is not None and view.ready:
            settings, known = replace(settings, tasks_from=view.path("tasks_from")), True
        cost = estimate_tasks(
            view.folder, llm, settings, journal=view.build.answers, retry_failed=view.retry_failed
        )
        return [replace(one, exact=known) for one in charge_of(llm, cost)]
