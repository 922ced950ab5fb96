"""Step `assemble`: makes test editions and training triples from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.edition.assemble import Assembly, assemble
from medteb_mteb.curation.edition.describe import gathered
from medteb_mteb.curation.files.sources import TextSource  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.labels.grades import read_labels
from medteb_mteb.curation.pipeline.base import Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.training_step import held_out, queries_trained_on
from medteb_mteb.curation.pipeline.work import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob


@step("assemble", after="review")
class AssembleStep(PipelineStep):
    """Options of an assemble step, as of `medteb assemble`."""

    WRITES = "editions"
    ATOMIC = True
    TASKS = ("MedTEBRetrieval", "MedTEBReranking")
    TRAINS = True
    labels: Annotated[str, Input(("labels",))]
    queries: Texts
    documents: Texts
    edition: str = Field(min_length=1, description="name of the edition")
    licence: str = Field(min_length=1)
    version: str = "1.0.0"
    test: float = Field(default=0.2, gt=0)
    corpus: Literal["undisputed", "labelled", "all"] = "undisputed"
    list_size: int = Field(default=100, ge=2)
    list_positives: int = Field(default=10, ge=1)
    against: Annotated[tuple[str, ...], Input(("triples", "pairs", "alignment"))] = ()
    leaks: Literal["drop", "keep", "fail"] = "drop"
    small: bool | None = None
    threshold: float = Field(default=0.6, gt=0, le=1)
    seed: int = 42
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    sources: tuple[TextSource, ...] | None = None

    def made(self) -> Assembly:
        """Return the settings.

        Raises:
            BuildError: The settings are invalid.
        """
        return Assembly(
            name=self.edition,
            licence=self.licence,
            version=self.version,
            test=self.test,
            corpus=self.corpus,
            list_size=self.list_size,
            list_positives=self.list_positives,
            leaks=self.leaks,
            threshold=self.threshold,
            seed=self.seed,
            small=bool(self.small),
        )

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Refuse impossible settings."""
        del pipeline, inputs
        self.made()

    def run(self, job: StepJob) -> StepOutcome:
        """Write the editions and the triples of the remaining queries."""
        built = assemble(
            read_labels(job.path("labels")),
            job.texts("queries"),
            job.texts("documents"),
            job.folder,
            self.made(),
            training_queries=queries_trained_on(job),
            held_out=held_out(self, job.inputs, self.threshold),
            provenance=gathered(
                [job.path("queries"), job.path("documents")], self.sources or (), job.path("labels")
            ),
        )
        for note in built.notes:
            job.say(note)
        return StepOutcome(
            {
                "editions": {
                    task: {"digest": edition.digest, "counts": edition.counts}
                    for task, edition in built.editions.items()
                },
                "triples": built.triples,
                "statistics": built.statistics,
            }
        )
