"""Step `diversify`: drops texts that have too many near neighbours among earlier texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from medteb_mteb.curation.files.sources import TextSource  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.base import PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome, counts_of

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import StepJob


@step("diversify", after="dedup")
class DiversifyStep(PipelineStep):
    """Options of a diversify step, as of `medteb diversify`."""

    WRITES = "texts"
    PASSING: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    source: Texts = Field(alias="in")
    kind: Literal["queries", "documents"]
    model: str
    threshold: float | None = Field(default=None, gt=-1, le=1)
    k: int = Field(default=5, ge=1)
    tolerated: int = Field(default=1, ge=0)
    seed_size: int = Field(default=5000, ge=0)
    index: Literal["exact", "ivf"] = "exact"
    lists: int = Field(default=0, ge=0)
    probes: int = Field(default=8, ge=1)
    sample: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=64, ge=1)
    columns: dict[str, str] = Field(default_factory=dict)
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    sources: tuple[TextSource, ...] | None = None

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that it loads."""
        return (self.model,)

    def run(self, job: StepJob) -> StepOutcome:
        """Select diverse texts."""
        from medteb_mteb.curation.diversify import (  # lazy: torch
            THRESHOLDS,
            Encoded,
            Search,
            SelectionRule,
            run_diversify,
        )

        threshold = THRESHOLDS[self.kind] if self.threshold is None else self.threshold
        vectors = Encoded(
            job.models[self.model],
            self.kind,
            job.build.store,
            batch_size=self.batch_size,
            show_progress=job.show_progress,
        )
        report, measured = run_diversify(
            job.path("in"),
            job.folder,
            vectors,
            SelectionRule(threshold, self.k, self.tolerated, self.seed_size),
            Search(self.index, self.lists, self.probes),
            columns=self.columns,
            sources=self.sources or (),
            sample=self.sample,
            show_progress=job.show_progress,
        )
        disagreement = {"disagreement": measured.to_json()} if measured is not None else {}
        return StepOutcome({**counts_of(report), **disagreement})
