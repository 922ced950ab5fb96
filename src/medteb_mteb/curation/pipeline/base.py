"""The base class of the steps of a pipeline: fields, checks, run and forecast of one step in one class."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medteb_mteb.curation.pipeline.work import Volume

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.llm import LLM
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import Charge, StepJob, StepOutcome, StepView

__all__ = ["KEEP_AWAY_KEY", "Input", "Kind", "ModelKind", "PipelineStep", "ResolvedInput", "Texts"]

#: Kinds of data that steps write and read.
Kind: TypeAlias = Literal[
    "texts", "pools", "judgements", "labels", "editions", "pairs", "triples", "alignment", "sheet", "file"
]
#: Kinds of models that a step may name: an encoder, BM25, or the file of a run.
ModelKind: TypeAlias = Literal["encoder", "bm25", "run"]

#: Key of the editions that a step's training data are kept apart from automatically.
KEEP_AWAY_KEY = "keep-away"


@dataclass(frozen=True)
class Input:
    """Marks a field as the name of an earlier step, or a path.

    Attributes:
        kinds: Allowed kinds.
    """

    kinds: tuple[Kind, ...]

    @property
    def texts(self) -> bool:
        """Return True if it holds texts and nothing else; a step that asks LLMs sends them."""
        return self.kinds == ("texts",)


@dataclass(frozen=True, slots=True)
class ResolvedInput:
    """An input that was found.

    Attributes:
        path: File, folder, or `hub:ORG/NAME`.
        step: Name of the step that writes it; empty if the input is given.
        inside: Path in the folder of that step, if the pipeline file gives one.
        texts: Whether only `read_texts` can read it.
    """

    path: str
    step: str = ""
    inside: str = ""
    texts: bool = False


Texts: TypeAlias = Annotated[str, Input(("texts",))]


class PipelineStep(BaseModel):
    """Base class of the steps of a pipeline; a subclass is registered by `registry.step`.

    Attributes:
        step: Kind of step.
        name: Name of the step and its folder; default `step`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    #: Kind of data that it writes.
    WRITES: ClassVar[Kind]
    #: File of its folder that a later step reads; empty for the folder itself.
    RESULT: ClassVar[str] = ""
    #: Options that its output does not depend on.
    PASSING: ClassVar[frozenset[str]] = frozenset()
    #: True for a quick step that cannot resume and is run from the start.
    ATOMIC: ClassVar[bool] = False
    #: Whether it writes training data.
    TRAINS: ClassVar[bool] = False
    #: Tasks that it writes editions of.
    TASKS: ClassVar[tuple[str, ...]] = ()
    #: Whether it asks LLMs, so that it can send failed requests again.
    ASKS: ClassVar[bool] = False
    #: Whether its texts may be sent to an LLM regardless of its input.
    ANONYMISES: ClassVar[bool] = False
    #: Kinds of models that it may name.
    MODELS: ClassVar[frozenset[ModelKind]] = frozenset({"encoder"})

    step: str
    name: str = Field(default="", pattern=r"^[\w-]*$", max_length=60)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("name") in (None, ""):
            return {**values, "name": values.get("step", "")}
        return values

    @abstractmethod
    def run(self, job: StepJob) -> StepOutcome:
        """Run or resume the step; a finished one returns at once, with the same result.

        Raises:
            BuildError: The step cannot be run.
        """

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Check for errors beyond the form of the file.

        Args:
            pipeline: The settings of the pipeline.
            inputs: Inputs of the step, by key.

        Raises:
            BuildError: There is an error.
        """
        del pipeline, inputs

    def forecast_volume(self, view: StepView) -> Volume | None:
        """Return an upper bound of the unfinished step's output; `None` if it is unknown."""
        if self.WRITES != "texts":
            return None
        before = view.volume("in")
        return Volume(before.items, before.tokens, exact=False)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Return the requests of the step to LLMs."""
        del view
        return []

    def output(self) -> str:
        """Return the file of its folder that later steps read; empty for the folder itself."""
        return self.RESULT

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that it loads."""
        return ()

    def llms(self, pipeline: PipelineSettings) -> tuple[LLM, ...]:
        """Return the LLMs that it asks."""
        del pipeline
        return ()

    def depends_on(self, pipeline: PipelineSettings) -> Any:
        """Return, as JSON, the parts of the pipeline its output depends on, besides options and inputs."""
        del pipeline
        return None

    def inputs(self) -> Iterator[tuple[str, Input, str]]:
        """Yield the given inputs: key in the file, allowed kinds, value."""
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, Input):
                    value = getattr(self, name)
                    for one in (value,) if isinstance(value, str) else value or ():
                        yield field.alias or name, mark, one

    def tests(self, paths: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the paths of the tests that its training data is kept away from, each once.

        Args:
            paths: Paths of the step's inputs, by key.
        """
        named = () if self.WRITES == "editions" else paths.get("against", ())
        return list(dict.fromkeys((*paths.get(KEEP_AWAY_KEY, ()), *named)))
