"""Step `review`: draws a sample of labels for clinicians to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from medteb_mteb.curation.labels.grades import read_labels
from medteb_mteb.curation.labels.review import export_review
from medteb_mteb.curation.pipeline.base import Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import StepJob


@step("review", after="consensus")
class ReviewStep(PipelineStep):
    """Options of a review step, as of `medteb review export`."""

    WRITES = "sheet"
    ATOMIC = True
    labels: Annotated[str, Input(("labels",))]
    queries: Texts
    documents: Texts
    size: int = Field(default=5000, ge=1)
    positives: float | None = Field(default=None, ge=0, le=1)
    seed: int = 42

    def run(self, job: StepJob) -> StepOutcome:
        """Write the sheet."""
        job.folder.mkdir(parents=True, exist_ok=True)
        sheet = job.folder / "sheet.csv"
        number = export_review(
            read_labels(job.path("labels")),
            job.texts("queries"),
            job.texts("documents"),
            sheet,
            size=self.size,
            seed=self.seed,
            positives=self.positives,
        )
        return StepOutcome({"pairs": number, "sheet": str(sheet)})
