"""Step `round-trip`: keeps pairs whose document a retriever finds again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from medteb_mteb.curation.pipeline.base import Input, ModelKind
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import TrainingStep, held_out
from medteb_mteb.curation.pipeline.work import StepOutcome, Volume
from medteb_mteb.curation.pooling.pool import open_retriever
from medteb_mteb.curation.training import RoundTrip as RoundTripSettings
from medteb_mteb.curation.training import round_trip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, StepView


@step("round-trip", after="synthesize-tasks")
class RoundTripStep(TrainingStep):
    """Options of a round-trip step, as of `medteb round-trip`."""

    WRITES = "triples"
    PASSING: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    MODELS: ClassVar[frozenset[ModelKind]] = frozenset({"encoder", "bm25"})
    pairs: Annotated[str, Input(("pairs", "triples"))]
    retriever: str
    documents: Annotated[str | None, Input(("texts",))] = None
    depth: int = Field(default=3, ge=1)
    negatives: int = Field(default=0, ge=0)
    top: int = Field(default=100, ge=1)
    batch_size: int = Field(default=64, ge=1)
    seed: int = 42

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that it loads."""
        return (self.retriever,)

    def output(self) -> str:
        """Return the file of rows, with negatives if they are added."""
        return "triples.jsonl" if self.negatives else "pairs.jsonl"

    def settings(self) -> RoundTripSettings:
        """Return the settings of `medteb_mteb.curation.training.round_trip`."""
        return RoundTripSettings(self.depth, self.negatives, self.top, self.seed)

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Refuse impossible settings."""
        del pipeline, inputs
        self.settings()

    def run(self, job: StepJob) -> StepOutcome:
        """Search, and write the pairs that are kept."""
        report = round_trip(
            job.path("pairs"),
            job.folder,
            open_retriever(
                self.retriever,
                source=job.models[self.retriever],
                store=job.build.store,
                batch_size=self.batch_size,
                show_progress=job.show_progress,
            ),
            self.settings(),
            documents=job.path("documents") if self.documents is not None else None,
            held_out=held_out(self, job.inputs, self.threshold),
            show_progress=job.show_progress,
        )
        return StepOutcome(report.to_json())

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every pair is kept."""
        return Volume(view.volume("pairs").items, exact=False)
