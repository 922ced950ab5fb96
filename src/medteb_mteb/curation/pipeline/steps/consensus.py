"""Step `consensus`: combines the grades of several judges into labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.consensus import ConsensusRule
from medteb_mteb.curation.labels.labelling import write_labels
from medteb_mteb.curation.pipeline.base import Input, PipelineStep
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome, Volume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, StepView


@step("consensus", after="judge")
class ConsensusStep(PipelineStep):
    """Options of a consensus step, as of `medteb consensus`."""

    WRITES = "labels"
    ATOMIC = True
    source: Annotated[str, Input(("judgements",))] = Field(alias="in")
    rule: Literal["unanimous", "majority", "weighted", "graded"] = "unanimous"
    positive: tuple[str, ...] = ("S", "A")
    weights: dict[str, float] = Field(default_factory=dict)
    share: float = 0.5
    spread: int = Field(default=1, ge=0)
    judges: tuple[str, ...] = ()
    incomplete: bool = False
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    keep_suspicious: bool | None = None

    def made(self) -> ConsensusRule:
        """Return the rule.

        Raises:
            BuildError: The rule is invalid.
        """
        return ConsensusRule(
            self.rule,
            self.positive,
            self.weights,
            self.share,
            self.spread,
            self.judges,
            self.incomplete,
            bool(self.keep_suspicious),
        )

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Refuse an impossible rule, and unknown judges."""
        rule = self.made()
        if pipeline.judges is None or all(one.step != self.source for one in inputs["in"]):
            return
        names = [one.name for one in pipeline.judges.judges]
        missing = sorted({*rule.judges, *rule.weights} - set(names))
        if missing:
            raise BuildError(
                f"Step {self.name!r}: {missing[0]!r} is not a judge; choose from {', '.join(names)}."
            )

    def run(self, job: StepJob) -> StepOutcome:
        """Label the pairs, and measure how well the judges agree."""
        return StepOutcome(write_labels(job.path("in"), job.folder, self.made()))

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every judged pair is labelled."""
        return view.volume("in")
