"""An opened pipeline file: its inputs and models are resolved, and its settings checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.model.digest import model_digest
from medteb_mteb.curation.files.read import concealed
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.resolve import model_places, resolve
from medteb_mteb.curation.pipeline.schema import Pipeline, beside, load_pipeline
from medteb_mteb.curation.pipeline.state import content_digest, fingerprint
from medteb_mteb.curation.pipeline.work import Workspace
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.base import PipelineStep, ResolvedInput
    from medteb_mteb.curation.pipeline.state import State, StepRecord

__all__ = ["Build", "until_step"]


@dataclass
class Build(Workspace):
    """A pipeline in its folder.

    Attributes:
        pipeline: The pipeline.
        sources: Inputs of each step, by step and key.
        models: Places of the models of each step, by step and model.
    """

    pipeline: Pipeline
    sources: dict[str, dict[str, list[ResolvedInput]]]
    models: dict[str, dict[str, str]]
    #: Digests of raw inputs that were computed once.
    _digests: dict[ResolvedInput, str] = field(default_factory=dict)

    @classmethod
    def open(cls, file: str | Path) -> Build:
        """Read a pipeline file and look for all its inputs.

        Raises:
            BuildError: The file or an input cannot be used.
        """
        pipeline, base = load_pipeline(file), Path(file).resolve().parent
        sources = resolve(pipeline, base)
        for step in pipeline.steps:
            step.check(pipeline, sources[step.name])
        models = {step.name: model_places(step, base) for step in pipeline.steps}
        for path in (pipeline.journal, pipeline.answers, pipeline.store):
            beside(base, path or "")
        return cls(pipeline, base, beside(base, pipeline.out), sources, models)

    def folder(self, step: PipelineStep) -> Path:
        """Return the folder of a step."""
        return self.root / step.name

    def has_made(self, step: PipelineStep, record: StepRecord) -> bool:
        """Return True if a step has output to lose: finished, or partial output that it could resume from."""
        return self.folder(step).exists() and (record.finished or not step.ATOMIC)

    def fingerprint(self, step: PipelineStep, state: State) -> str:
        """Return the digest of all that a step depends on; the steps before it must be finished."""
        digests = {
            key: [self._digest(one, state) for one in inputs]
            for key, inputs in self.sources[step.name].items()
        }
        models = {name: _model_digest(place) for name, place in self.models[step.name].items()}
        return fingerprint(step, digests, models, self.pipeline)

    def _digest(self, source: ResolvedInput, state: State) -> str:
        if source.step:
            return f"{state.records[source.step].digest} {source.inside}".rstrip()
        if source not in self._digests:
            self._digests[source] = concealed(content_digest(source.path, texts=source.texts))
        return self._digests[source]


def until_step(pipeline: Pipeline, until: str | None) -> list[PipelineStep]:
    """Return the steps up to one of them, or all.

    Raises:
        BuildError: The pipeline has no step of this name.
    """
    names = [step.name for step in pipeline.steps]
    if until is not None and until not in names:
        raise BuildError(f"The pipeline has no step {until!r}. Its steps are {', '.join(names)}.")
    return list(pipeline.steps[: names.index(until) + 1 if until is not None else None])


def _model_digest(place: str) -> str:
    """Return the digest of a model's files or of a run; for a model of the Hub, its name."""
    if place.startswith("bm25"):
        return place
    if Path(place).is_file():
        return sha256_of(Path(place))

    return model_digest(place)
