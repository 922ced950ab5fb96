"""`medteb run`: evaluates models on tasks with mteb and makes the table."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import mteb
from mteb.cache import ResultCache

from medteb_mteb import register_tasks
from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.model_run import ModelRun, OptionalTasks, RunOptions, run_model
from medteb_mteb.models.local import resolve_model
from medteb_mteb.report import (
    ResultTable,
    ScoreEntry,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.abstasks.aggregated_task import AbsTaskAggregate
    from mteb.models import ModelMeta

__all__ = ["RunOptions", "RunOutcome", "quieten", "run"]


@dataclass
class RunOutcome:
    """Outcome of a run: the table of finished scores, and the errors.

    Attributes:
        table: Existing and new scores.
        errors: A line per failed model and task.
        left_out: Tasks of benchmarks whose data are not available, and why.
    """

    table: ResultTable
    errors: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def run(options: RunOptions) -> RunOutcome:
    """Evaluate every model on every task; results that exist for the same data and model are reused.

    Each result is saved as soon as it is there, in mteb's format under ``<output>/results``; scores per
    query, pair or text go to ``<output>/items``. A task or model that fails does not stop the others. A task
    of a benchmark whose data cannot be fetched is left out, unless it was also requested by name.

    Raises:
        UserError: If nothing can be run: no tasks or models, unknown names.
        FolderError: If a data folder has problems; nothing is run then.
    """
    if not options.models:
        raise UserError("no model given; pass -m MODEL (a name or a folder)")
    if not options.verbose:
        quieten()
    tasks, optional = _tasks(options)
    metas = [resolve_model(name, random_weights=options.random_weights) for name in options.models]
    labels = _labels(metas)
    try:
        cache = ResultCache(options.output)
    except OSError as error:
        raise UserError(f"{options.output}: cannot be used for results ({error.strerror})") from None
    entries: list[ScoreEntry] = []
    errors: list[str] = []
    left_out = OptionalTasks(optional)
    for label, meta in zip(labels, metas, strict=True):
        run_model(ModelRun(options, cache, meta, label), tasks, entries, errors, left_out)
    scored = {entry.task for entry in entries}
    # A task with a saved result of any model stays in the table, even if its data are not available.
    names = [name for task in tasks if (name := task.metadata.name) in scored or name not in left_out.reasons]
    differs = {task.metadata.name: str(getattr(task, "differs", "")) for task in tasks}
    differs = {name: text for name, text in differs.items() if text and name in scored}
    table = ResultTable(labels, names, entries, _averages(options), differs)
    return RunOutcome(table, errors, left_out.reasons)


def _averages(options: RunOptions) -> dict[str, Sequence[Sequence[str]]]:
    """Return the averages that the benchmarks' papers report, named by benchmark if there are several.

    The tasks that mteb makes of several others are averages, too: mteb defines their score as the mean.
    """
    benchmarks = [mteb.get_benchmark(name) for name in options.benchmarks]
    tasks = [mteb.get_task(name) for name in options.tasks]
    all_averages: dict[str, Sequence[Sequence[str]]] = {
        task.metadata.name: [[part.metadata.name for part in _parts(task)]]
        for task in chain(tasks, *(benchmark.tasks for benchmark in benchmarks))
        if task.is_aggregate
    }
    for name, benchmark in zip(options.benchmarks, benchmarks, strict=True):
        averages = getattr(benchmark, "averages", {})
        prefix = f"{name}, " if len(options.benchmarks) > 1 else ""
        all_averages |= {f"{prefix}{one}": groups for one, groups in averages.items()}
    return all_averages


def _tasks(options: RunOptions) -> tuple[list[AbsTask], frozenset[str]]:
    """Return the tasks to run, and the names of those that benchmarks alone ask for."""
    from medteb_mteb.tasks.of_folders import tasks_from_folders  # lazy: datasets

    tasks: dict[str, AbsTask] = {}
    for folder_task in tasks_from_folders(options.data):
        folder_task.load_data()  # reports data problems before any model is loaded
        tasks[folder_task.metadata.name] = folder_task
    _register(tasks.values())
    for name in options.tasks:
        try:
            task = mteb.get_task(name)
        except KeyError as error:
            raise UserError(f"task {name}: {error.args[0].removeprefix('KeyError: ')}") from None
        _add(tasks, task)
    requested = frozenset(tasks)
    for name in options.benchmarks:
        try:
            benchmark = mteb.get_benchmark(name)
        except KeyError as error:
            raise UserError(f"benchmark {name}: {error.args[0]}") from None
        for task in benchmark.tasks:
            _add(tasks, task)
    if not tasks:
        raise UserError("no task given; pass --data FOLDER, -t TASK or -b BENCHMARK")
    return list(tasks.values()), frozenset(tasks) - requested


def _add(tasks: dict[str, AbsTask], task: AbsTask) -> None:
    for part in _parts(task):
        name = part.metadata.name
        known = tasks.setdefault(name, part)
        if known.metadata.revision != part.metadata.revision:
            raise UserError(f"task {name}: given twice with different data; run them one after the other")


def _parts(task: AbsTask) -> Sequence[AbsTask]:
    """Return the tasks that mteb averages for a task such as `CQADupstackRetrieval`; else the task itself."""
    return cast("AbsTaskAggregate", task).tasks if task.is_aggregate else [task]


def _register(tasks: Any) -> None:
    """Make folder tasks known to mteb by name, which it needs to honour prompts keyed by task name."""
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
    """Return row names: the model's name, with the revision if several models share it."""
    names = [str(meta.name) for meta in metas]
    labels = [
        name if names.count(name) == 1 else f"{name}@{str(meta.revision)[:8]}"
        for name, meta in zip(names, metas, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"model {label}: given twice")
    return labels


def quieten() -> None:
    """Keep warnings and progress bars of the libraries off stderr."""
    warnings.simplefilter("ignore")
    for name in ("mteb", "sentence_transformers", "transformers", "datasets", "bm25s", "jieba"):
        logging.getLogger(name).setLevel(logging.ERROR)
    import datasets.utils.logging  # lazy: datasets
    import transformers.utils.logging  # lazy: transformers

    datasets.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
