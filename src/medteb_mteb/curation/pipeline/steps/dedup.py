"""Step `dedup`: drops texts that nearly repeat an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from medteb_mteb.curation.files.sources import TextSource  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.files.step import run_step
from medteb_mteb.curation.pipeline.base import PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome, counts_of
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import StepJob


@step("dedup", after="anonymize")
class DedupStep(PipelineStep):
    """Options of a dedup step, as of `medteb dedup`."""

    WRITES = "texts"
    source: Texts = Field(alias="in")
    threshold: float = Field(default=0.8, gt=0, le=1)
    width: int = Field(default=3, ge=1)
    columns: dict[str, str] = Field(default_factory=dict)
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    sources: tuple[TextSource, ...] | None = None

    def run(self, job: StepJob) -> StepOutcome:
        """Drop near-duplicates."""
        report = run_step(
            NearDuplicates(self.threshold, self.width),
            job.path("in"),
            job.folder,
            columns=self.columns,
            sources=self.sources or (),
            show_progress=job.show_progress,
        )
        return StepOutcome(counts_of(report))
