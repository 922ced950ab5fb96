"""The steps of a pipeline that ask an LLM to write, and those that make training sets."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.config import LLM  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.steps import Input, StepBase, Texts

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.schema import Pipeline
    from medteb_mteb.curation.sts import Settings
    from medteb_mteb.curation.synthetic import QuerySettings, TaskSettings
    from medteb_mteb.curation.training import RoundTrip as RoundTripSettings
    from medteb_mteb.curation.training import TwoLists

__all__ = ["Pairs", "RoundTrip", "Sts", "SynthesizeQueries", "SynthesizeTasks", "Triples", "Written"]


class Written(StepBase):
    """A step that asks the pipeline's LLM."""

    ASKS = True
    PASSING = frozenset({"llm"})
    llm: LLM | None = Field(default=None, description="default: that of the pipeline")

    @abstractmethod
    def prompts(self) -> str:
        """Version of its prompts."""

    @abstractmethod
    def settings(self) -> Any:
        """Its settings, as its function takes them.

        Raises:
            BuildError: Impossible ones.
        """

    def writer(self, pipeline: Pipeline) -> LLM:
        """The LLM: its own, or that of the pipeline.

        Raises:
            BuildError: Neither names one.
        """
        found = self.llm or pipeline.llm
        if found is None:
            raise BuildError(f"Step {self.name!r} needs an LLM; give 'llm', or the path of its file.")
        return found

    def llms(self, pipeline: Pipeline) -> tuple[LLM, ...]:
        """The one that writes."""
        return (self.writer(pipeline),)

    def depends_on(self, pipeline: Pipeline) -> Any:
        """The LLM's settings, not where and how fast it is asked."""
        return self.writer(pipeline).settings(self.prompts())

    def check(self, pipeline: Pipeline) -> None:
        """Somebody has to write, and the settings have to be possible."""
        self.writer(pipeline)
        self.settings()


class Sts(Written):
    """Options of an sts step, as of `medteb sts`."""

    WRITES = "editions"
    # Its answers are in the journal; what it made of them is made again.
    ATOMIC = True
    TASKS = ("MedTEBSTS",)
    TRAINS = True
    step: Literal["sts"]
    dictionary: Annotated[str, Input(("file",))]
    queries: Texts
    edition: str = Field(min_length=1, description="name of the edition")
    licence: str = Field(min_length=1)
    version: str = "1.0.0"
    test: float = Field(default=0.2, gt=0)
    probabilities: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    tolerance: float = Field(default=0.3, ge=0, lt=1)
    per_entry: int | None = Field(default=None, ge=1)
    limit: int | None = Field(default=None, ge=1)
    against: Annotated[tuple[str, ...], Input(("triples", "pairs", "alignment"))] = ()
    threshold: float = Field(default=0.6, gt=0, le=1)
    seed: int = 42

    def prompts(self) -> str:
        """Version of its prompts."""
        from medteb_mteb.curation.sts.prompt import prompt_version

        return prompt_version()

    def settings(self) -> Settings:
        """Settings of `medteb_mteb.curation.sts.sts`."""
        from medteb_mteb.curation.sts import Settings

        return Settings(
            self.edition,
            self.licence,
            self.version,
            self.test,
            self.probabilities,
            self.tolerance,
            self.per_entry,
            self.limit,
            self.threshold,
            self.seed,
        )


class Kept(StepBase):
    """A step whose training data is kept away from `against`, and from the editions of the steps before."""

    TRAINS = True
    against: Annotated[tuple[str, ...], Input(("texts", "editions"))] = ()
    threshold: float = Field(default=0.6, gt=0, le=1)


class Triples(Written, Kept):
    """Options of a triples step, as of `medteb triples`."""

    WRITES = "triples"
    step: Literal["triples"]
    queries: Texts
    documents: Texts
    pools: Annotated[str, Input(("pools",))]
    depth: int = Field(default=50, ge=1)
    documents_per_prompt: int = Field(default=10, ge=1)
    prompt_tokens: int = 16_000
    control_rate: float = Field(default=1.0, ge=0, le=1)
    negatives: int = Field(default=15, ge=0)
    choose: Literal["top", "random"] = "top"
    seed: int = 42

    def prompts(self) -> str:
        """Version of its prompts."""
        from medteb_mteb.curation.training.prompt import prompt_version

        return prompt_version()

    def settings(self) -> TwoLists:
        """Settings of `medteb_mteb.curation.training.make_triples`."""
        from medteb_mteb.curation.training import TwoLists

        return TwoLists(
            depth=self.depth,
            documents=self.documents_per_prompt,
            prompt_tokens=self.prompt_tokens,
            control_rate=self.control_rate,
            negatives=self.negatives,
            choose=self.choose,
            seed=self.seed,
        )


class SynthesizeQueries(Written, Kept):
    """Options of a synthesize-queries step, as of `medteb synthesize queries`."""

    WRITES = "pairs"
    RESULT = "pairs.jsonl"
    step: Literal["synthesize-queries"]
    documents: Texts
    language: Literal["zh", "en"] = "zh"
    per_document: int = Field(default=1, ge=1, le=20)
    forms: dict[str, float] | None = None
    shortest: int = Field(default=20, ge=1)
    longest: int = Field(default=4000, ge=100)
    sample: int | None = Field(default=None, ge=1)
    instruction: str = ""
    origin: str = Field(default="synthetic-queries", description="what the rows call their source")
    seed: int = 42

    def prompts(self) -> str:
        """Version of its prompts."""
        from medteb_mteb.curation.synthetic.query_prompt import query_version

        return query_version(self.language)

    def settings(self) -> QuerySettings:
        """Settings of `medteb_mteb.curation.synthetic.synthesize_queries`."""
        from medteb_mteb.curation.synthetic import QuerySettings

        forms = {} if self.forms is None else {"forms": self.forms}
        return QuerySettings(
            language=self.language,
            per_document=self.per_document,
            shortest=self.shortest,
            longest=self.longest,
            sample=self.sample,
            seed=self.seed,
            source=self.origin,
            instruction=self.instruction,
            **forms,
        )


class SynthesizeTasks(Written, Kept):
    """Options of a synthesize-tasks step, as of `medteb synthesize tasks`."""

    WRITES = "triples"
    step: Literal["synthesize-tasks"]
    language: Literal["zh", "en"] = "zh"
    tasks: int = Field(default=20, ge=1)
    pairs_per_task: int = Field(default=10, ge=1)
    tasks_from: Annotated[str | None, Input(("file",))] = None
    origin: str = Field(default="synthetic-tasks", description="what the rows call their source")
    seed: int = 42

    def prompts(self) -> str:
        """Version of its prompts."""
        from medteb_mteb.curation.synthetic.task_prompts import brainstorm_version, example_version

        return f"{brainstorm_version(self.language)} {example_version(self.language)}"

    def settings(self) -> TaskSettings:
        """Settings of `medteb_mteb.curation.synthetic.synthesize_tasks`, without the file of tasks."""
        from medteb_mteb.curation.synthetic import TaskSettings

        return TaskSettings(
            language=self.language,
            tasks=self.tasks,
            pairs_per_task=self.pairs_per_task,
            seed=self.seed,
            source=self.origin,
        )


class Pairs(Kept):
    """Options of a pairs step, as of `medteb pairs`."""

    WRITES = "alignment"
    step: Literal["pairs"]
    queries: Annotated[tuple[str, ...], Input(("texts",))] = ()
    documents: Annotated[tuple[str, ...], Input(("texts",))] = ()
    shares: dict[str, float] = Field(default_factory=dict)
    seed: int = 42

    def check(self, pipeline: Pipeline) -> None:
        """Shares have to be those of its sources."""
        del pipeline
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


class RoundTrip(Kept):
    """Options of a round-trip step, as of `medteb round-trip`."""

    WRITES = "triples"
    PASSING = frozenset({"batch_size"})
    step: Literal["round-trip"]
    pairs: Annotated[str, Input(("pairs", "triples"))]
    retriever: str
    documents: Annotated[str | None, Input(("texts",))] = None
    depth: int = Field(default=3, ge=1)
    negatives: int = Field(default=0, ge=0)
    top: int = Field(default=100, ge=1)
    batch_size: int = Field(default=64, ge=1)
    seed: int = 42

    def models(self) -> tuple[str, ...]:
        """Names of the models that it loads."""
        return (self.retriever,)

    def output(self) -> str:
        """Rows with negatives, where they are added."""
        return "triples.jsonl" if self.negatives else "pairs.jsonl"

    def settings(self) -> RoundTripSettings:
        """Settings of `medteb_mteb.curation.training.round_trip`."""
        from medteb_mteb.curation.training import RoundTrip as RoundTripSettings

        return RoundTripSettings(self.depth, self.negatives, self.top, self.seed)

    def check(self, pipeline: Pipeline) -> None:
        """The settings have to be possible."""
        del pipeline
        self.settings()
