"""Base class of the steps that only write training data, and what such data is kept away from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from medteb_mteb.curation.pipeline.base import Input, PipelineStep
from medteb_mteb.curation.training import read_held_out, training_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.work import StepJob
    from medteb_mteb.curation.training import HeldOut

__all__ = ["TrainingStep", "held_out", "queries_trained_on"]


class TrainingStep(PipelineStep):
    """A step whose training data is kept away from `against`, and from the editions of the steps before."""

    TRAINS = True
    against: Annotated[tuple[str, ...], Input(("texts", "editions"))] = ()
    threshold: float = Field(default=0.6, gt=0, le=1)


def held_out(step: PipelineStep, paths: Mapping[str, Sequence[str]], threshold: float) -> HeldOut:
    """Return the test queries that a step's training data must not contain, see `PipelineStep.tests`.

    Args:
        step: The step.
        paths: Paths of its inputs, by key.
        threshold: Minimum similarity at which two queries count as near-duplicates.
    """
    return read_held_out(step.tests(paths), threshold)


def queries_trained_on(job: StepJob) -> list[str]:
    """Return the queries of the training data under `against`, which a test must not contain."""
    return [query for path in job.inputs.get("against", ()) for query in training_queries(path)]
