"""Execution of the steps that have an LLM write texts, and of those that make training sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.pipeline import training_steps as steps  # noqa: TC001 - read by register
from medteb_mteb.curation.pipeline.actions import Job, Outcome, perform

if TYPE_CHECKING:
    from medteb_mteb.curation.synthetic import SynthesisReport


def _asking(step: steps.Written, job: Job) -> dict[str, Any]:
    """Return the arguments common to all functions that ask an LLM."""
    return {
        "llm": step.writer(job.pipeline),
        "journal": job.build.answers,
        "retry_failed": job.retry_failed,
        "show_progress": job.show_progress,
    }


def _noted(job: Job, report: Any) -> Outcome:
    for note in report.notes:
        job.say(note)
    return Outcome(report.to_json(), report.stopped)


@perform.register
def _(step: steps.Sts, job: Job) -> Outcome:
    from medteb_mteb.curation.sts import sts
    from medteb_mteb.curation.training import training_queries

    report = sts(
        job.path("dictionary"),
        job.path("queries"),
        job.folder,
        how=step.settings(),
        already_anonymous=job.pipeline.already_anonymous,
        training_queries=[
            query for path in job.inputs.get("against", ()) for query in training_queries(path)
        ],
        held_out=job.held_out(step, step.threshold),
        **_asking(step, job),
    )
    content = report.to_json()
    if "edition" in content:
        content["editions"] = {step.TASKS[0]: content.pop("edition")}
    return Outcome(content, report.stopped)


@perform.register
def _(step: steps.Triples, job: Job) -> Outcome:
    from medteb_mteb.curation.training import make_triples

    return _noted(
        job,
        make_triples(
            job.path("queries"),
            job.path("documents"),
            job.path("pools"),
            job.folder,
            how=step.settings(),
            held_out=job.held_out(step, step.threshold),
            already_anonymous=job.pipeline.already_anonymous,
            **_asking(step, job),
        ),
    )


@perform.register
def _(step: steps.SynthesizeQueries, job: Job) -> Outcome:
    from medteb_mteb.curation.synthetic import synthesize_queries

    report: SynthesisReport = synthesize_queries(
        job.path("documents"),
        job.folder,
        settings=step.settings(),
        held_out=job.held_out(step, step.threshold),
        already_anonymous=job.pipeline.already_anonymous,
        **_asking(step, job),
    )
    return _noted(job, report)


@perform.register
def _(step: steps.SynthesizeTasks, job: Job) -> Outcome:
    from medteb_mteb.curation.synthetic import synthesize_tasks

    settings = step.settings()
    if step.tasks_from is not None:
        settings = replace(settings, tasks_from=job.path("tasks_from"))
    return _noted(
        job,
        synthesize_tasks(
            job.folder, settings=settings, held_out=job.held_out(step, step.threshold), **_asking(step, job)
        ),
    )


@perform.register
def _(step: steps.Pairs, job: Job) -> Outcome:
    from medteb_mteb.curation.training import Weighted, alignment_sets

    def weighted(key: str, given: tuple[str, ...]) -> list[Weighted]:
        paths = job.inputs.get(key, [])
        return [Weighted(path, step.shares.get(name, 1.0)) for name, path in zip(given, paths, strict=True)]

    report = alignment_sets(
        job.folder,
        weighted("queries", step.queries),
        weighted("documents", step.documents),
        held_out=job.held_out(step, step.threshold),
        seed=step.seed,
        show_progress=job.show_progress,
    )
    return Outcome(report.to_json())


@perform.register
def _(step: steps.RoundTrip, job: Job) -> Outcome:
    from medteb_mteb.curation.pooling.pool import open_retriever
    from medteb_mteb.curation.training import round_trip

    report = round_trip(
        job.path("pairs"),
        job.folder,
        open_retriever(
            step.retriever,
            source=job.models[step.retriever],
            store=job.build.store,
            batch_size=step.batch_size,
            show_progress=job.show_progress,
        ),
        step.settings(),
        documents=job.path("documents") if step.documents is not None else None,
        held_out=job.held_out(step, step.threshold),
        show_progress=job.show_progress,
    )
    return Outcome(report.to_json())
