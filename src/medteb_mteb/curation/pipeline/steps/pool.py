"""Step `pool`: merges the candidates of several retrievers for each query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from mar_st.data.trec import is_run
from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.base import ModelKind, PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome, Volume
from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, StepView


@step("pool", after="diversify")
class PoolStep(PipelineStep):
    """Options of a pool step, as of `medteb pool`."""

    WRITES = "pools"
    RESULT = "pools.jsonl"
    PASSING: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    MODELS: ClassVar[frozenset[ModelKind]] = frozenset({"encoder", "bm25", "run"})
    queries: Texts
    documents: Texts
    retrievers: tuple[str, ...] = Field(min_length=1)
    size: int = Field(default=500, ge=1)
    depth: int = Field(default=500, ge=1)
    merge: Literal["rrf", "union"] = "rrf"
    batch_size: int = Field(default=64, ge=1)

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that it loads."""
        return self.retrievers

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Refuse two retrievers of one name in the pools."""
        del pipeline, inputs
        names = [Path(name).stem if is_run(name) else name for name in self.retrievers]
        if len({"bm25" if name == "bm25:char-bigram" else name for name in names}) < len(names):
            raise BuildError(f"Step {self.name!r}: two retrievers have one name: {', '.join(names)}.")

    def run(self, job: StepJob) -> StepOutcome:
        """Search with all retrievers and merge their results."""
        queries, documents = list(job.texts("queries").values()), list(job.texts("documents").values())
        ids = ([text.id for text in queries], [text.id for text in documents])
        retrievers = [
            open_retriever(
                name,
                source=job.models[name],
                store=job.build.store,
                batch_size=self.batch_size,
                show_progress=job.show_progress,
                ids=ids,
            )
            for name in self.retrievers
        ]
        pool(
            queries,
            documents,
            retrievers,
            job.folder,
            Pooling(self.size, self.depth, self.merge),
            show_progress=job.show_progress,
            say=job.say,
        )
        manifest = read_json(job.folder / MANIFEST)
        return StepOutcome(
            {key: manifest[key] for key in ("queries", "documents", "pairs", "found by one alone")}
        )

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every pool is full."""
        queries, documents = view.volume("queries"), view.volume("documents")
        most = min(self.size, self.depth * len(self.retrievers), documents.items)
        return Volume(queries.items * most, queries=queries.items, exact=False)
