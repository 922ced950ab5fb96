"""Execution of each step of a pipeline: calls the functions behind the commands with the file's options."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.pipeline import steps
from medteb_mteb.curation.pipeline.resolve import tests_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.files.step import Report
    from medteb_mteb.curation.pipeline.run import Build
    from medteb_mteb.curation.pipeline.schema import Pipeline
    from medteb_mteb.curation.training import HeldOut

__all__ = ["Job", "Outcome", "perform"]


@dataclass(frozen=True)
class Job:
    """Arguments of a step.

    Attributes:
        build: The pipeline in its folder.
        inputs: Paths, by key.
        models: Where the models are, by the names that the step gives them.
        folder: Folder to write.
        retry_failed: Ask again for what failed in earlier runs.
        show_progress: Show bars.
        say: Receives lines for people.
    """

    build: Build
    inputs: dict[str, list[str]]
    models: dict[str, str]
    folder: Path
    retry_failed: bool
    show_progress: bool
    say: Callable[[str], None]

    @property
    def pipeline(self) -> Pipeline:
        """The whole pipeline."""
        return self.build.pipeline

    def path(self, key: str) -> str:
        """The one path of an input."""
        return self.inputs[key][0]

    def held_out(self, step: steps.StepBase, threshold: float) -> HeldOut:
        """Return the test queries that the step's training data must not contain, see `resolve.tests_of`."""
        from medteb_mteb.curation.training import read_held_out

        return read_held_out(tests_of(step, self.inputs), threshold)

    def texts(self, key: str) -> dict[str, Text]:
        """Texts of an input, by id."""
        return {text.id: text for text in read_texts(self.path(key))}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step.

    Attributes:
        result: Numbers for people and programs, as JSON values.
        stopped: Why it ended early; empty if it did not.
    """

    result: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""


@singledispatch
def perform(step: steps.StepBase, job: Job) -> Outcome:
    """Run or resume a step; a finished one returns at once, with the same result.

    Raises:
        BuildError: As the step's function does.
    """
    del job
    raise TypeError(f"There is no action for a step of the kind {step.step!r}.")


def _texts(report: Report) -> dict[str, Any]:
    return {"read": report.read, "kept": report.kept, "dropped": report.dropped}


@perform.register
def _(step: steps.Anonymize, job: Job) -> Outcome:
    from medteb_mteb.curation.anonymize.step import anonymize

    done = anonymize(
        job.path("in"),
        job.folder,
        mode=step.mode,
        kinds=step.kinds,
        # One secret for the whole build: a name in a query and in a document gets the same surrogate.
        salt=job.build.root / "surrogates.salt",
        keep_meta=step.keep_meta,
        ids=step.ids,
        known=job.path("known") if step.known is not None else None,
        strict=step.strict,
        reviewed=job.path("reviewed") if step.reviewed is not None else None,
        columns=step.columns,
        show_progress=job.show_progress,
    )
    return Outcome({**_texts(done.report), "identifiers": done.identifiers})


@perform.register
def _(step: steps.Dedup, job: Job) -> Outcome:
    from medteb_mteb.curation.files.step import run_step
    from medteb_mteb.curation.texts.near_duplicates import NearDuplicates

    made = NearDuplicates(step.threshold, step.width)
    report = run_step(made, job.path("in"), job.folder, columns=step.columns, show_progress=job.show_progress)
    return Outcome(_texts(report))


@perform.register
def _(step: steps.Diversify, job: Job) -> Outcome:
    from medteb_mteb.curation.diversify import THRESHOLDS, Encoded, Rule, Search, run_diversify

    threshold = THRESHOLDS[step.kind] if step.threshold is None else step.threshold
    vectors = Encoded(
        job.models[step.model],
        step.kind,
        job.build.store,
        batch_size=step.batch_size,
        show_progress=job.show_progress,
    )
    report, measured = run_diversify(
        job.path("in"),
        job.folder,
        vectors,
        Rule(threshold, step.k, step.tolerated, step.seed_size),
        Search(step.index, step.lists, step.probes),
        columns=step.columns,
        sample=step.sample,
        show_progress=job.show_progress,
    )
    found = {"disagreement": measured.to_json()} if measured is not None else {}
    return Outcome({**_texts(report), **found})


@perform.register
def _(step: steps.Pool, job: Job) -> Outcome:
    from medteb_mteb.curation.files.folder import read_json
    from medteb_mteb.curation.files.read import MANIFEST
    from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool

    queries, documents = list(job.texts("queries").values()), list(job.texts("documents").values())
    ids = ([text.id for text in queries], [text.id for text in documents])
    pool(
        queries,
        documents,
        [
            open_retriever(
                name,
                source=job.models[name],
                store=job.build.store,
                batch_size=step.batch_size,
                show_progress=job.show_progress,
                ids=ids,
            )
            for name in step.retrievers
        ],
        job.folder,
        Pooling(step.size, step.depth, step.merge),
        show_progress=job.show_progress,
        say=job.say,
    )
    manifest = read_json(job.folder / MANIFEST)
    return Outcome({key: manifest[key] for key in ("queries", "documents", "pairs", "found by one alone")})


@perform.register
def _(step: steps.Judge, job: Job) -> Outcome:
    from medteb_mteb.curation.judge import judge

    assert job.pipeline.judges is not None  # noqa: S101 - checked when the pipeline was opened
    report = judge(
        job.path("queries"),
        job.path("documents"),
        job.path("pools"),
        job.folder,
        job.pipeline.judges,
        journal=job.build.journal,
        gold=job.path("gold") if step.gold else None,
        already_anonymous=job.pipeline.already_anonymous,
        retry_failed=job.retry_failed,
        show_progress=job.show_progress,
    )
    for note in report.notes:
        job.say(note)
    stopped = "; ".join(f"{one.name}: {one.stopped}" for one in report.judges if one.stopped)
    return Outcome(report.to_json(), stopped)


@perform.register
def _(step: steps.Consensus, job: Job) -> Outcome:
    from medteb_mteb.curation.labels.labelling import write_labels

    return Outcome(write_labels(job.path("in"), job.folder, step.made()))


@perform.register
def _(step: steps.Review, job: Job) -> Outcome:
    from medteb_mteb.curation.labels.grades import read_labels
    from medteb_mteb.curation.labels.review import export_review

    job.folder.mkdir(parents=True, exist_ok=True)
    sheet = job.folder / "sheet.csv"
    number = export_review(
        read_labels(job.path("labels")),
        job.texts("queries"),
        job.texts("documents"),
        sheet,
        size=step.size,
        seed=step.seed,
        positives=step.positives,
    )
    return Outcome({"pairs": number, "sheet": str(sheet)})


@perform.register
def _(step: steps.Assemble, job: Job) -> Outcome:
    from medteb_mteb.curation.edition.assemble import assemble
    from medteb_mteb.curation.labels.grades import read_labels
    from medteb_mteb.curation.training import training_queries

    built = assemble(
        read_labels(job.path("labels")),
        job.texts("queries"),
        job.texts("documents"),
        job.folder,
        step.made(),
        training_queries=[
            query for path in job.inputs.get("against", ()) for query in training_queries(path)
        ],
        held_out=job.held_out(step, step.threshold),
    )
    for note in built.notes:
        job.say(note)
    return Outcome(
        {
            "editions": {
                task: {"digest": edition.digest, "counts": edition.counts}
                for task, edition in built.editions.items()
            },
            "triples": built.triples,
            "statistics": built.statistics,
        }
    )
