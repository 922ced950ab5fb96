"""Step `pairs`: makes sets of texts to align encoders on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.base import Input
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import TrainingStep, held_out
from medteb_mteb.curation.pipeline.work import StepOutcome, Volume
from medteb_mteb.curation.training import Weighted, alignment_sets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, StepView


@step("pairs", after="triples")
class PairsStep(TrainingStep):
    """Options of a pairs step, as of `medteb pairs`."""

    WRITES = "alignment"
    queries: Annotated[tuple[str, ...], Input(("texts",))] = ()
    documents: Annotated[tuple[str, ...], Input(("texts",))] = ()
    shares: dict[str, float] = Field(default_factory=dict)
    seed: int = 42

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Check that every share belongs to a source."""
        del pipeline, inputs
        if not self.queries and not self.documents:
            raise BuildError(f"Step {self.name!r} needs queries or documents.")
        unknown = sorted(set(self.shares) - {*self.queries, *self.documents})
        if unknown:
            raise BuildError(
                f"Step {self.name!r} has a share of {unknown[0]!r}, which is none of its sources."
            )
        for source, share in self.shares.items():
            if not 0 < share <= 1:
                raise BuildError(
                    f"Step {self.name!r}: a share is above 0 and up to 1; that of {source!r} is {share:g}."
                )

    def run(self, job: StepJob) -> StepOutcome:
        """Write the sets."""

        def weighted(key: str, names: tuple[str, ...]) -> list[Weighted]:
            paths = job.inputs.get(key, [])
            return [
                Weighted(path, self.shares.get(name, 1.0)) for name, path in zip(names, paths, strict=True)
            ]

        report = alignment_sets(
            job.folder,
            weighted("queries", self.queries),
            weighted("documents", self.documents),
            held_out=held_out(self, job.inputs, self.threshold),
            seed=self.seed,
            show_progress=job.show_progress,
        )
        return StepOutcome(report.to_json())

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every text is kept."""
        keys = [key for key in ("queries", "documents") if key in view.paths]
        return Volume(sum(one.items for key in keys for one in view.volumes(key)), exact=False)
