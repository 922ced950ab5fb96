"""Step `judge`: has the judges of the pipeline grade pooled pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import judge
from medteb_mteb.curation.judge.estimate import at_most, estimate
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.pipeline.base import Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import Charge, StepOutcome, Volume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.judge.config import Judges
    from medteb_mteb.curation.pipeline.base import ResolvedInput
    from medteb_mteb.curation.pipeline.settings import PipelineSettings
    from medteb_mteb.curation.pipeline.work import StepJob, StepView


@step("judge", after="pool")
class JudgeStep(PipelineStep):
    """Options of a judge step, as of `medteb judge`; the judges are those of the pipeline."""

    WRITES = "judgements"
    ASKS = True
    queries: Texts
    documents: Texts
    pools: Annotated[str, Input(("pools",))]
    gold: Annotated[str | None, Input(("pools", "file"))] = None

    def llms(self, pipeline: PipelineSettings) -> tuple[LLM, ...]:
        """Return the judges that are LLMs."""
        judges = pipeline.judges.judges if pipeline.judges else ()
        return tuple(one for one in judges if isinstance(one, LLM))

    def depends_on(self, pipeline: PipelineSettings) -> Any:
        """Return the judges' settings, without their addresses and limits."""
        if pipeline.judges is None:
            return {}
        return {
            **{one.name: one.description() for one in pipeline.judges.judges},
            **pipeline.judges.checking(),
        }

    def check(self, pipeline: PipelineSettings, inputs: Mapping[str, Sequence[ResolvedInput]]) -> None:
        """Check that there are judges."""
        del inputs
        self._judges(pipeline)

    def run(self, job: StepJob) -> StepOutcome:
        """Ask the judges."""
        report = judge(
            job.path("queries"),
            job.path("documents"),
            job.path("pools"),
            job.folder,
            self._judges(job.pipeline),
            journal=job.build.journal,
            gold=job.path("gold") if self.gold else None,
            already_anonymous=job.pipeline.already_anonymous,
            retry_failed=job.retry_failed,
            show_progress=job.show_progress,
        )
        for note in report.notes:
            job.say(note)
        stopped = "; ".join(f"{one.name}: {one.stopped}" for one in report.judges if one.stopped)
        return StepOutcome(report.to_json(), stopped)

    def forecast_volume(self, view: StepView) -> Volume:
        """Assume that every pair is judged."""
        pools = view.volume("pools")
        return Volume(pools.items, queries=pools.queries, exact=pools.exact)

    def forecast_charges(self, view: StepView) -> list[Charge]:
        """Estimate the requests; exact once the pools exist."""
        judges = self._judges(view.pipeline)
        if view.ready:
            estimates = estimate(
                view.path("queries"),
                view.path("documents"),
                view.path("pools"),
                judges,
                journal=view.build.journal,
                out=view.folder,
                gold=view.path("gold") if self.gold else None,
                retry_failed=view.retry_failed,
            )
            return [
                Charge(
                    one.judge,
                    one.requests,
                    one.tokens_in,
                    one.tokens_out,
                    one.cost,
                    one.known,
                    checks=one.checks,
                )
                for one in estimates
            ]
        queries, documents, pools = view.volume("queries"), view.volume("documents"), view.volume("pools")
        estimates = [
            at_most(
                judge,
                queries=pools.queries or queries.items,
                query_tokens=queries.tokens / max(1, queries.items),
                pairs=pools.items,
                document_tokens=documents.tokens / max(1, documents.items),
            )
            for judge in judges.judges
        ]
        return [
            Charge(one.judge, one.requests, one.tokens_in, one.tokens_out, one.cost, exact=False)
            for one in estimates
        ]

    def _judges(self, pipeline: PipelineSettings) -> Judges:
        if pipeline.judges is None:
            raise BuildError(
                f"Step {self.name!r} needs judges; give 'judges', a list, or the path of their file."
            )
        return pipeline.judges
