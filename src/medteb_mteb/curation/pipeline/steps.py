"""The steps that a pipeline may have, with their options; those of the commands of the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.consensus import Rule
from medteb_mteb.curation.llm.config import LLM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medteb_mteb.curation.edition.assemble import Assembly
    from medteb_mteb.curation.pipeline.schema import Pipeline

__all__ = [
    "Anonymize",
    "Assemble",
    "Consensus",
    "Dedup",
    "Diversify",
    "Input",
    "Judge",
    "Kind",
    "Pool",
    "Review",
    "StepBase",
    "Texts",
]

#: What a step writes, and another reads.
Kind: TypeAlias = Literal[
    "texts", "pools", "judgements", "labels", "editions", "pairs", "triples", "alignment", "sheet", "file"
]


@dataclass(frozen=True)
class Input:
    """Marks a field as the name of an earlier step, or a path.

    Attributes:
        kinds: What it may be.
    """

    kinds: tuple[Kind, ...]


Texts: TypeAlias = Annotated[str, Input(("texts",))]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class StepBase(_Strict):
    """Base class of the steps of a pipeline.

    Attributes:
        step: Which.
        name: What it is called, and its folder; default as `step`.
    """

    #: What it writes.
    WRITES: ClassVar[Kind]
    #: Which file of its folder a later step reads; empty: the folder.
    RESULT: ClassVar[str] = ""
    #: Options that its output does not depend on.
    PASSING: ClassVar[frozenset[str]] = frozenset()
    #: True for a quick step that cannot resume and is run from the start.
    ATOMIC: ClassVar[bool] = False
    #: Whether it writes what models are trained on.
    TRAINS: ClassVar[bool] = False
    #: Tasks that it writes editions of.
    TASKS: ClassVar[tuple[str, ...]] = ()
    #: Whether it asks LLMs, so that it can have failures to ask for again.
    ASKS: ClassVar[bool] = False

    step: str
    name: str = Field(default="", pattern=r"^[\w-]*$", max_length=60)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("name") in (None, ""):
            return {**values, "name": values.get("step", "")}
        return values

    def output(self) -> str:
        """Return the file of its folder that later steps read; empty for the folder itself."""
        return self.RESULT

    def models(self) -> tuple[str, ...]:
        """Names of the models that it loads."""
        return ()

    def llms(self, pipeline: Pipeline) -> tuple[LLM, ...]:
        """The LLMs that it asks."""
        del pipeline
        return ()

    def depends_on(self, pipeline: Pipeline) -> Any:
        """Return, as JSON, the parts of the pipeline its output depends on, besides options and inputs."""
        del pipeline
        return None

    def check(self, pipeline: Pipeline) -> None:
        """Look for what can be wrong beyond the form of the file.

        Raises:
            BuildError: Something is.
        """
        del pipeline

    def inputs(self) -> Iterator[tuple[str, Input, str]]:
        """The inputs that are given: key in the file, what it may be, its value."""
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, Input):
                    value = getattr(self, name)
                    for one in (value,) if isinstance(value, str) else value or ():
                        yield field.alias or name, mark, one


class Anonymize(StepBase):
    """Options of an anonymize step, as of `medteb anonymize`."""

    WRITES = "texts"
    step: Literal["anonymize"]
    source: Texts = Field(alias="in")
    mode: Literal["placeholder", "surrogate"] = "placeholder"
    kinds: tuple[str, ...] | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    keep_meta: tuple[str, ...] = ()
    ids: Literal["check", "keep", "digest"] = "check"
    known: Annotated[str | None, Input(("file",))] = None
    strict: bool = False
    reviewed: Annotated[str | None, Input(("file",))] = None


class Dedup(StepBase):
    """Options of a dedup step, as of `medteb dedup`."""

    WRITES = "texts"
    step: Literal["dedup"]
    source: Texts = Field(alias="in")
    threshold: float = Field(default=0.8, gt=0, le=1)
    width: int = Field(default=3, ge=1)
    columns: dict[str, str] = Field(default_factory=dict)


class Diversify(StepBase):
    """Options of a diversify step, as of `medteb diversify`."""

    WRITES = "texts"
    PASSING = frozenset({"batch_size"})
    step: Literal["diversify"]
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

    def models(self) -> tuple[str, ...]:
        """Names of the models that it loads."""
        return (self.model,)


class Pool(StepBase):
    """Options of a pool step, as of `medteb pool`."""

    WRITES = "pools"
    RESULT = "pools.jsonl"
    PASSING = frozenset({"batch_size"})
    step: Literal["pool"]
    queries: Texts
    documents: Texts
    retrievers: tuple[str, ...] = Field(min_length=1)
    size: int = Field(default=500, ge=1)
    depth: int = Field(default=500, ge=1)
    merge: Literal["rrf", "union"] = "rrf"
    batch_size: int = Field(default=64, ge=1)

    def models(self) -> tuple[str, ...]:
        """Names of the models that it loads."""
        return self.retrievers


class Judge(StepBase):
    """Options of a judge step, as of `medteb judge`; the judges are those of the pipeline."""

    WRITES = "judgements"
    ASKS = True
    step: Literal["judge"]
    queries: Texts
    documents: Texts
    pools: Annotated[str, Input(("pools",))]
    gold: Annotated[str | None, Input(("pools", "file"))] = None

    def llms(self, pipeline: Pipeline) -> tuple[LLM, ...]:
        """The judges that are LLMs."""
        judges = pipeline.judges.judges if pipeline.judges else ()
        return tuple(one for one in judges if isinstance(one, LLM))

    def depends_on(self, pipeline: Pipeline) -> Any:
        """The judges' settings, not where and how fast they are asked."""
        judges = pipeline.judges.judges if pipeline.judges else ()
        return {one.name: one.description() for one in judges}

    def check(self, pipeline: Pipeline) -> None:
        """Somebody has to judge."""
        if pipeline.judges is None:
            raise BuildError(
                f"Step {self.name!r} needs judges; give 'judges', a list, or the path of their file."
            )


class Consensus(StepBase):
    """Options of a consensus step, as of `medteb consensus`."""

    WRITES = "labels"
    ATOMIC = True
    step: Literal["consensus"]
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

    def made(self) -> Rule:
        """The rule.

        Raises:
            BuildError: An impossible one.
        """
        return Rule(
            self.rule,
            self.positive,
            self.weights,
            self.share,
            self.spread,
            self.judges,
            self.incomplete,
            bool(self.keep_suspicious),
        )

    def check(self, pipeline: Pipeline) -> None:
        """The rule has to be possible, and name judges that there are."""
        rule = self.made()
        if pipeline.judges is None or all(step.name != self.source for step in pipeline.steps):
            return
        there = [one.name for one in pipeline.judges.judges]
        missing = sorted({*rule.judges, *rule.weights} - set(there))
        if missing:
            raise BuildError(f"Step {self.name!r}: there is no judge {missing[0]!r}, but {', '.join(there)}.")


class Review(StepBase):
    """Options of a review step, as of `medteb review export`."""

    WRITES = "sheet"
    ATOMIC = True
    step: Literal["review"]
    labels: Annotated[str, Input(("labels",))]
    queries: Texts
    documents: Texts
    size: int = Field(default=5000, ge=1)
    positives: float | None = Field(default=None, gt=0, lt=1)
    seed: int = 42


class Assemble(StepBase):
    """Options of an assemble step, as of `medteb assemble`."""

    WRITES = "editions"
    ATOMIC = True
    TASKS = ("MedTEBRetrieval", "MedTEBReranking")
    TRAINS = True
    step: Literal["assemble"]
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

    def made(self) -> Assembly:
        """The settings.

        Raises:
            BuildError: Impossible ones.
        """
        from medteb_mteb.curation.edition.assemble import Assembly

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

    def check(self, pipeline: Pipeline) -> None:
        """The settings have to be possible."""
        del pipeline
        self.made()
