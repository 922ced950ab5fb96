"""`medteb run`: evaluates models on tasks with mteb and makes the table."""

from __future__ import annotations

import copy
import logging
import random
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
from mteb.cache import ResultCache

from medteb_mteb import register_tasks
from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.commands.errors import UserError
from medteb_mteb.editions import EditionError
from medteb_mteb.folders import FolderError
from medteb_mteb.models.local import resolve_model
from medteb_mteb.nano.rankings import SUFFIX, KeptRankings, write_rankings
from medteb_mteb.report import (
    Entry,
    Holes,
    NoItemScoresError,
    ResultTable,
    item_scores,
    load_item_scores,
    save_item_scores,
    save_no_item_scores,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

__all__ = ["RunOptions", "RunOutcome", "run"]


@dataclass(frozen=True)
class RunOptions:
    """Options of one run.

    Attributes:
        data: Data folders to evaluate on.
        tasks: Names of tasks known to mteb.
        benchmarks: Names of benchmarks known to mteb.
        models: Names of models, or local model folders.
        output: Folder of results in mteb's own layout, and of scores per item.
        overwrite: Evaluate again even where results exist.
        batch_size: Texts encoded at once.
        device: Torch device, None for the best there is.
        save_predictions: Keep mteb's predictions (runs, similarities) too.
        random_weights: Seed for model folders that hold a configuration only.
        quiet: No progress on stderr.
        verbose: Show the warnings of the libraries.
    """

    data: Sequence[Path] = ()
    tasks: Sequence[str] = ()
    benchmarks: Sequence[str] = ()
    models: Sequence[str] = ()
    output: Path = Path("results")
    overwrite: bool = False
    batch_size: int = 32
    device: str | None = None
    save_predictions: bool = False
    random_weights: int | None = None
    quiet: bool = False
    verbose: bool = False


@dataclass
class RunOutcome:
    """Outcome of a run: the table of finished scores, and the errors.

    Attributes:
        table: Scores, old and new.
        errors: One line per model and task that failed.
        left_out: Tasks of benchmarks whose data are not to be had here, and why.
    """

    table: ResultTable
    errors: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def run(options: RunOptions) -> RunOutcome:
    """Evaluates every model on every task; results that exist for the same data and model are reused.

    Each result is saved as soon as it is there, in mteb's format under ``<output>/results``; scores per
    query, pair or text go to ``<output>/items``. A task or model that fails does not stop the others. A task
    of a benchmark whose data cannot be fetched is left out, unless it was asked for by its name too.

    Raises:
        UserError: If nothing can be run: no tasks or models, unknown names.
        FolderError: If a data folder has problems; nothing is run then.
    """
    if not options.models:
        raise UserError("no model given; pass -m MODEL (a name or a folder)")
    _quieten(options.verbose)
    tasks, optional = _tasks(options)
    metas = [resolve_model(name, random_weights=options.random_weights) for name in options.models]
    labels = _labels(metas)
    try:
        cache = ResultCache(options.output)
    except OSError as error:
        raise UserError(f"{options.output}: cannot be used for results ({error.strerror})") from None
    entries: list[Entry] = []
    errors: list[str] = []
    left_out = _OptionalTasks(optional)
    for label, meta in zip(labels, metas, strict=True):
        _run_model(_ModelRun(options, cache, meta, label), tasks, entries, errors, left_out)
    scored = {entry.task for entry in entries}
    # With a saved result of one model a task has its place in the table, whether or not its data are here.
    names = [name for task in tasks if (name := task.metadata.name) in scored or name not in left_out.reasons]
    return RunOutcome(ResultTable(labels, names, entries), errors, left_out.reasons)


class _NoDataError(Exception):
    """The data of a task are not to be had here."""


@dataclass
class _OptionalTasks:
    """Tasks that may be left out, and those that were, with the reason."""

    optional: frozenset[str]
    reasons: dict[str, str] = field(default_factory=dict)

    def load(self, task: AbsTask) -> None:
        """Load a task's data; what is damaged is an error, what is not to be had leaves the task out."""
        name = task.metadata.name
        if name in self.reasons:
            raise _NoDataError(self.reasons[name])
        try:
            task.load_data()
        except (FolderError, EditionError):
            raise
        except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
            if name not in self.optional:
                raise
            self.reasons[name] = _one_line(error)
            raise _NoDataError(self.reasons[name]) from error


@dataclass
class _ModelRun:
    options: RunOptions
    cache: ResultCache
    meta: ModelMeta
    label: str
    model: Any = None

    def load(self) -> Any:
        """The model, loaded at first use: with every result at hand it is not needed at all."""
        if self.model is None:
            self.model = self.meta.load_model(device=self.options.device)
        return self.model

    def path(self, kind: str, task: AbsTask) -> Path:
        """Return the path of a file about this model and task, beside mteb's result."""
        result = self.cache.get_task_result_path(task.metadata.name, self.meta)
        return self.options.output / kind / result.relative_to(self.cache.cache_path / "results")

    def say(self, text: str) -> None:
        if not self.options.quiet:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def _run_model(
    model_run: _ModelRun,
    tasks: Sequence[AbsTask],
    entries: list[Entry],
    errors: list[str],
    left_out: _OptionalTasks,
) -> None:
    for task in tasks:
        name = task.metadata.name
        try:
            existing = _existing(model_run, task)
            if existing is not None:
                model_run.say(f"{model_run.label}  {name}: {existing.get_score():.4f} (saved before)")
                entries.append(_entry(model_run, task, existing))
                continue
            fresh = _fresh(task)
            left_out.load(fresh)
            try:
                model_run.load()
            except Exception as error:
                errors.append(f"{model_run.label}: the model cannot be loaded: {_one_line(error)}")
                model_run.say(f"{model_run.label}: cannot be loaded, see below")
                return
            started = time.monotonic()
            result, note = _evaluate(model_run, fresh)
            elapsed = time.monotonic() - started
            model_run.say(f"{model_run.label}  {name}: {result.get_score():.4f} ({elapsed:.1f} s)")
            entries.append(_entry(model_run, task, result, note))
        except _NoDataError:
            model_run.say(f"{model_run.label}  {name}: left out, see below")
        except Exception as error:  # one failing task must not lose the others
            errors.append(f"{model_run.label} on {name}: {_one_line(error)}")
            model_run.say(f"{model_run.label}  {name}: failed, see below")


def _existing(model_run: _ModelRun, task: AbsTask) -> TaskResult | None:
    """The saved result, if it is complete and of the same data."""
    if model_run.options.overwrite:
        return None
    found = model_run.cache.load_task_result(task.metadata.name, model_run.meta)
    if found is None:
        return None
    # mteb reuses a complete result whatever data it was measured on.
    if found.dataset_revision != task.metadata.revision:
        model_run.say(
            f"{model_run.label}  {task.metadata.name}: the saved result is of other data "
            f"({found.dataset_revision[:12]}); evaluating on {task.metadata.revision[:12]}"
        )
        return None
    return None if found.get_missing_evaluations(task) else found


def _evaluate(model_run: _ModelRun, task: AbsTask) -> tuple[TaskResult, str]:
    """Runs one loaded task, saves the result and the scores per item; returns why there are none, if so.

    mteb would unload the data of a task that it has loaded itself, and the scores per item need them.
    """
    options = model_run.options
    # Progress bars only where someone watches; logs stay readable.
    progress = sys.stderr.isatty() and not options.quiet
    with tempfile.TemporaryDirectory(prefix=".predictions-", dir=options.output) as scratch:
        outcome = mteb.evaluate(
            model_run.load(),
            task,
            co2_tracker=False,
            cache=model_run.cache,
            overwrite_strategy="always",
            encode_kwargs={"batch_size": options.batch_size, "show_progress_bar": progress},
            prediction_folder=scratch,
            show_progress_bar=progress,
        )
        if outcome.exceptions or not outcome.task_results:
            reason = outcome.exceptions[0].exception if outcome.exceptions else "mteb returned no result"
            raise RuntimeError(reason)
        # As it was saved, which is rounded: a score must not depend on whether it was just made.
        result = model_run.cache.load_task_result(task.metadata.name, model_run.meta, raise_if_not_found=True)
        assert result is not None  # noqa: S101 -- for mypy; mteb raises instead
        note = ""
        items = model_run.path("items", task)
        items.unlink(missing_ok=True)
        try:
            save_item_scores(items, item_scores(task, Path(scratch), result.get_score()))
        except NoItemScoresError as error:
            note = str(error)
            save_no_item_scores(items, task, note)
        _keep_rankings(model_run, task)
        if options.save_predictions and (saved := Path(scratch) / task.prediction_file_name).is_file():
            target = model_run.path("predictions", task)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(saved, target)
    return result, note


def _keep_rankings(model_run: _ModelRun, task: AbsTask) -> None:
    """Keep the rankings of tasks that promise it, so that they can be scored without the model."""
    from medteb_mteb.tasks.nano import NanoTask  # lazy: datasets

    if isinstance(task, NanoTask):
        name, revision = task.metadata.name, task.metadata.revision
        kept = KeptRankings(name, model_run.label, revision, task.positives(), task.rankings)
        write_rankings(model_run.path("rankings", task).with_suffix(SUFFIX), kept)


def _fresh(task: AbsTask) -> AbsTask:
    """A copy with a random state of its own, so that a score does not depend on what ran before it."""
    copied = copy.copy(task)
    copied.rng_state, copied.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
    return copied


def _entry(model_run: _ModelRun, task: AbsTask, result: TaskResult, note: str = "") -> Entry:
    score = result.get_score()
    metric = task.metadata.main_score
    sample = None
    if not note:
        try:
            sample = load_item_scores(
                model_run.path("items", task),
                metric=metric,
                dataset_revision=result.dataset_revision,
                main_score=score,
            ).sample
        except NoItemScoresError as error:
            note = str(error)
    return Entry(
        model=model_run.label,
        model_revision=str(model_run.meta.revision),
        task=task.metadata.name,
        metric=metric,
        score=score,
        dataset_revision=result.dataset_revision,
        sample=sample,
        note=note,
        holes=_holes(task, result),
    )


def _holes(task: AbsTask, result: TaskResult) -> Holes | None:
    """Measure the share of a ranking that was judged, for retrieval tasks whose data this project reads."""
    if not isinstance(task, JudgedRetrieval) or task.metadata.type != "Retrieval":
        return None
    scores = result.scores[task.eval_splits[0]][0]
    if "bpref" in scores:
        return Holes.of_scores(scores, known=True)
    task.load_data()  # a result without these scores does not say whether the data list the negatives
    return Holes.of_scores(scores, task.judged.known)


def _tasks(options: RunOptions) -> tuple[list[AbsTask], frozenset[str]]:
    """The tasks to run, and the names of those that benchmarks alone ask for."""
    from medteb_mteb.tasks.of_folders import tasks_from_folders  # lazy: datasets

    tasks: dict[str, AbsTask] = {}
    for folder_task in tasks_from_folders(options.data):
        folder_task.load_data()  # every problem of the data, before any model is loaded
        tasks[folder_task.metadata.name] = folder_task
    _register(tasks.values())
    for name in options.tasks:
        try:
            found = mteb.get_task(name)
        except KeyError as error:
            raise UserError(f"task {name}: {error.args[0]}") from None
        _add(tasks, found)
    asked = frozenset(tasks)
    for name in options.benchmarks:
        try:
            benchmark = mteb.get_benchmark(name)
        except KeyError as error:
            raise UserError(f"benchmark {name}: {error.args[0]}") from None
        for found in benchmark.tasks:
            _add(tasks, found)
    if not tasks:
        raise UserError("no task given; pass --data FOLDER, -t TASK or -b BENCHMARK")
    return list(tasks.values()), frozenset(tasks) - asked


def _add(tasks: dict[str, AbsTask], task: AbsTask) -> None:
    known = tasks.setdefault(task.metadata.name, task)
    if known.metadata.revision != task.metadata.revision:
        raise UserError(
            f"task {task.metadata.name}: given twice with different data; run them one after the other"
        )


def _register(tasks: Any) -> None:
    """Makes folder tasks known to mteb by name, which it needs to honour prompts keyed by task name."""
    for task in tasks:
        name = task.metadata.name
        try:
            known = mteb.get_task(name)
        except KeyError:
            register_tasks([task])
            continue
        if not type(known).__module__.startswith("medteb_mteb."):
            raise UserError(
                f"{task.folder}: {name!r} is the name of one of mteb's own tasks; rename the folder, or "
                "give it a name in its README header: `medteb: {name: ...}`"
            )


def _labels(metas: Sequence[ModelMeta]) -> list[str]:
    """Row names: the model's name, with the revision where one name stands for several models."""
    names = [str(meta.name) for meta in metas]
    labels = [
        name if names.count(name) == 1 else f"{name}@{str(meta.revision)[:8]}"
        for name, meta in zip(names, metas, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"model {label}: given twice")
    return labels


def _quieten(verbose: bool) -> None:
    if verbose:
        return
    warnings.simplefilter("ignore")
    for name in ("mteb", "sentence_transformers", "transformers", "datasets", "bm25s", "jieba"):
        logging.getLogger(name).setLevel(logging.ERROR)
    import datasets.utils.logging  # lazy: datasets
    import transformers.utils.logging  # lazy: transformers

    datasets.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (
        text
        if isinstance(error, (UserError, ValueError, RuntimeError))
        else f"{type(error).__name__}: {text}"
    )
