"""`medteb run`: evaluate models on tasks with mteb, and make the table of scores."""

from __future__ import annotations

import copy
import logging
import math
import random
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Settings, Switch, say, shown
from medteb_mteb.folders.content import TaskFolder, read_folder
from medteb_mteb.folders.layout import is_nano

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.abstasks.aggregated_task import AbsTaskAggregate
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    from medteb_mteb.report.table import ResultTable, ScoreEntry


class RunSettings(Settings):
    """Options of a run."""

    models: Annotated[tuple[str, ...], Switch("-m", "--model")] = Field(
        min_length=1, description="Model known to mteb, a model folder, or a run (*.trec); may be repeated."
    )
    data: tuple[Path, ...] = Field((), description="Data folder in the Hub layout; may be repeated.")
    tasks: Annotated[tuple[str, ...], Switch("-t", "--task")] = Field(
        (), description="Task known to mteb; may be repeated."
    )
    benchmarks: Annotated[tuple[str, ...], Switch("-b", "--benchmark")] = Field(
        (), description="Benchmark, e.g. 'MedTEB(cmn, mini)'; may be repeated."
    )
    output_folder: Path = Field(Path("results"), description="Folder to keep results in.")
    overwrite: bool = Field(False, description="Evaluate again even if results exist.")
    batch_size: int = Field(32, ge=1, description="Number of texts encoded at once.")
    device: str | None = Field(None, description="PyTorch device, e.g. cpu; default: a GPU if there is one.")
    trec: bool = Field(False, description="Save rankings as TREC runs, and the judgements as TREC qrels.")
    markdown: bool = Field(False, description="Print the table and the comparisons as Markdown.")


@dataclass
class RunOutcome:
    """Outcome of a run: the table of finished scores, and the errors.

    Attributes:
        table: Existing and new scores.
        errors: A line per failed model and task.
        left_out: Tasks of benchmarks whose data are not available, and why.
        markdown: True to print Markdown.
    """

    table: ResultTable
    errors: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    markdown: bool = False

    @property
    def failed(self) -> bool:
        """Return True if an evaluation failed, or nothing was evaluated."""
        return bool(self.errors) or not self.table.entries

    def to_json(self) -> dict[str, Any]:
        """Return the scores, errors and what was left out as JSON values."""
        return {**self.table.to_json(), "errors": self.errors, "left_out": self.left_out}


def run(settings: RunSettings) -> RunOutcome:
    """Evaluate models on tasks, benchmarks or data folders.

    `mteb available-benchmarks` and `mteb available-tasks` list those that are known; `--data` takes folders
    of your own. Prints the scores with 95 % bootstrap intervals over the test items, and a paired test of
    every two models. Results are saved in mteb's own format and reused when data and model are the same, so
    the same command continues an interrupted run. Tasks of a benchmark whose data cannot be fetched are left
    out and listed with the reason. The exit code is 1 if an evaluation failed or nothing could be run; the
    others are saved.
    """
    if not (settings.data or settings.tasks or settings.benchmarks):
        raise MarError("No task is given; pass --data FOLDER, -t TASK or -b BENCHMARK.")
    folders = [folder if is_nano(folder) else read_folder(folder) for folder in settings.data]
    from mteb.cache import ResultCache  # lazy: mteb, after the data are checked

    from medteb_mteb.report.table import ResultTable  # lazy: scipy

    _quieten()
    tasks, optional = _tasks(settings, folders)
    metas = [_model(name) for name in settings.models]
    labels = _labels(metas)
    outcome = RunOutcome(ResultTable(labels, [], []), markdown=settings.markdown)
    cache = ResultCache(settings.output_folder)
    entries: list[ScoreEntry] = []
    for label, meta in zip(labels, metas, strict=True):
        entries += _Runner(settings, cache, meta, label, outcome, optional).entries(tasks)
    scored = {entry.task for entry in entries}
    # A task with a saved result of any model stays in the table, even if its data are not available.
    names = [
        name
        for name in (one.metadata.name for one in tasks)
        if name in scored or name not in outcome.left_out
    ]
    outcome.table = ResultTable(labels, names, entries, _averages(settings))
    return outcome


def _model(name: str) -> ModelMeta:
    from mar_st.data.trec import is_run  # lazy: pyarrow
    from medteb_mteb.models.local import resolve_model  # lazy: mteb
    from medteb_mteb.models.runs import run_meta  # lazy: mteb

    if is_run(name) and Path(name).is_file():
        return run_meta(Path(name))
    return resolve_model(name)


def _averages(settings: RunSettings) -> dict[str, Sequence[Sequence[str]]]:
    """Return the averages that the benchmarks' papers report, named by benchmark if there are several."""
    import mteb  # lazy: mteb

    averages: dict[str, Sequence[Sequence[str]]] = {}
    for name in settings.benchmarks:
        prefix = f"{name}, " if len(settings.benchmarks) > 1 else ""
        of_paper = getattr(mteb.get_benchmark(name), "averages", {})
        averages |= {f"{prefix}{one}": groups for one, groups in of_paper.items()}
    return averages


def _tasks(
    settings: RunSettings, folders: Iterable[Path | TaskFolder]
) -> tuple[list[AbsTask], frozenset[str]]:
    """Return the tasks to run, and the names of those that benchmarks alone ask for."""
    import mteb  # lazy: mteb

    from medteb_mteb.tasks import tasks_from_folders  # lazy: datasets

    tasks: dict[str, AbsTask] = {}

    def add(some: Iterable[AbsTask]) -> None:
        for part in chain.from_iterable(map(_parts, some)):
            name = part.metadata.name
            if tasks.setdefault(name, part).metadata.revision != part.metadata.revision:
                raise MarError(f"Task {name} is given twice with different data; run one after the other.")

    for folder_task in tasks_from_folders(folders):
        folder_task.load_data()  # reports problems of a Nano set before any model is loaded
        _register(folder_task)
        tasks[folder_task.metadata.name] = folder_task
    try:
        add(map(mteb.get_task, settings.tasks))
        requested = frozenset(tasks)
        add(task for name in settings.benchmarks for task in mteb.get_benchmark(name).tasks)
    except KeyError as error:
        raise MarError(f"{error.args[0].removeprefix('KeyError: ')}") from None
    return list(tasks.values()), frozenset(tasks) - requested


def _parts(task: AbsTask) -> Sequence[AbsTask]:
    """Return the tasks that mteb averages for a task such as `CQADupstackRetrieval`; else the task itself."""
    return cast("AbsTaskAggregate", task).tasks if task.is_aggregate else [task]


def _register(task: Any) -> None:
    """Make a folder's task known to mteb by name, which it needs to honour prompts keyed by task name."""
    import mteb  # lazy: mteb

    from medteb_mteb import register_tasks  # lazy: mteb

    try:
        ours = type(mteb.get_task(task.metadata.name)).__module__.startswith("medteb_mteb.")
    except KeyError:
        ours = False
    if not ours:
        register_tasks([task])


def _labels(metas: Sequence[ModelMeta]) -> list[str]:
    """Return row names: the model's name, with the revision if several models share it."""
    names = [str(meta.name) for meta in metas]
    labels = [
        name if names.count(name) == 1 else f"{name}@{str(meta.revision)[:8]}"
        for name, meta in zip(names, metas, strict=True)
    ]
    if len(set(labels)) < len(labels):
        raise MarError(f"A model is given twice: {', '.join(labels)}.")
    return labels


@dataclass
class _Runner:
    """One model in a run.

    Attributes:
        settings: Options of the run.
        cache: Results in mteb's layout.
        meta: The model's metadata.
        label: Name in the table.
        outcome: Receives errors and tasks that are left out.
        optional: Names of tasks that may be left out.
        model: The model, or None until it is needed.
    """

    settings: RunSettings
    cache: ResultCache
    meta: ModelMeta
    label: str
    outcome: RunOutcome
    optional: frozenset[str]
    model: Any = None

    def entries(self, tasks: Sequence[AbsTask]) -> list[ScoreEntry]:
        """Return the scores on all tasks, saved ones reused; a failure does not stop the others."""
        entries = []
        for task in tasks:
            name = task.metadata.name
            try:
                result = self._saved(task)
                if result is not None:
                    self._say(f"{name}: {result.get_score():.4f} (saved before)")
                else:
                    fresh = _fresh(task)
                    if not self._loaded(fresh):
                        self._say(f"{name}: left out, see below")
                        continue
                    if not self._ready():
                        break
                    result = self._evaluated(fresh)
                entries.append(self._entry(task, result))
            except Exception as error:  # one failing task must not lose the others
                self.outcome.errors.append(f"{self.label} on {name}: {_one_line(error)}")
                self._say(f"{name}: failed, see below")
        return entries

    def _ready(self) -> bool:
        """Load the model if it is not; without a model the other tasks are not tried."""
        from medteb_mteb.abstasks import finite  # lazy: mteb

        if self.model is None:
            try:
                self.model = finite(self.meta.load_model(device=self.settings.device))
            except Exception as error:  # its files may be damaged in many ways
                self.outcome.errors.append(f"{self.label}: the model cannot be loaded: {_one_line(error)}")
        return self.model is not None

    def _say(self, text: str) -> None:
        say(f"{self.label}  {text}")

    def _path(self, kind: str, task: AbsTask, suffix: str = ".json") -> Path:
        """Return the path of a file about this model and task, beside mteb's result."""
        result = self.cache.get_task_result_path(task.metadata.name, self.meta)
        place = self.settings.output_folder / kind / result.relative_to(self.cache.cache_path / "results")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.with_suffix(suffix)

    def _saved(self, task: AbsTask) -> TaskResult | None:
        """Return the saved result if it is complete, of the same data, and has the requested rankings."""
        name = task.metadata.name
        if self.settings.overwrite:
            return None
        try:
            saved = self.cache.load_task_result(name, self.meta)
        except Exception as error:  # which one depends on the damage
            self._say(f"{name}: the saved result is damaged ({_one_line(error)}); evaluating again")
            return None
        if saved is None or saved.get_missing_evaluations(task):
            return None
        # mteb reuses a complete result whatever data it was measured on.
        if saved.dataset_revision != task.metadata.revision:
            self._say(f"{name}: the saved result is of other data; evaluating again")
            return None
        saved = saved.validate_and_filter_scores(task)  # the file may hold further splits and subsets
        scores = [one["main_score"] for split in saved.scores.values() for one in split]
        wanted = self.settings.trec and _is_ranking(task)
        lacking = wanted and not self._path("trec", task, ".trec").is_file()
        if lacking or not all(isinstance(one, int | float) and math.isfinite(one) for one in scores):
            self._say(f"{name}: the saved result is incomplete; evaluating again")
            return None
        return saved

    def _evaluated(self, task: AbsTask) -> TaskResult:
        """Evaluate a loaded task and save everything about it."""
        from mteb.results import TaskResult  # lazy: mteb

        from medteb_mteb.report.scores import save_items  # lazy: scipy

        name = task.metadata.name
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".predictions-", dir=self.settings.output_folder) as scratch:
            result = self._result(task, Path(scratch))
            save_items(self._path("items", task), task, Path(scratch), result.get_score())
            if self.settings.trec and _is_ranking(task):
                self._save_trec(task, Path(scratch) / task.prediction_file_name)
        # The result comes last: a task that has one is not evaluated again, so its other files must be there.
        kwargs: Any = {"batch_size": self.settings.batch_size}
        self.cache.save_to_cache(result, self.meta, encode_kwargs=kwargs)
        self._say(f"{name}: {result.get_score():.4f} ({time.monotonic() - started:.1f} s)")
        # The saved result is rounded; using it makes new and reused scores equal.
        return TaskResult.from_disk(self.cache.get_task_result_path(name, self.meta))

    def _loaded(self, task: AbsTask) -> bool:
        """Load a task's data; damaged data are an error, unavailable data leave an optional task out."""
        from medteb_mteb.abstasks import DataUnavailableError  # lazy: mteb

        name = task.metadata.name
        if name in self.outcome.left_out:
            return False
        try:
            task.load_data()
        except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
            damaged = isinstance(error, MarError) and not isinstance(error, DataUnavailableError)
            if damaged or name not in self.optional:
                raise
            self.outcome.left_out[name] = _one_line(error)
            return False
        return True

    def _result(self, task: AbsTask, predictions: Path) -> TaskResult:
        """Run one loaded task: mteb would unload data that it has loaded, and the items need them."""
        import mteb  # lazy: mteb

        bars = sys.stderr.isatty()
        outcome = mteb.evaluate(
            self.model,
            task,
            co2_tracker=False,
            cache=None,
            encode_kwargs={"batch_size": self.settings.batch_size, "show_progress_bar": bars},
            prediction_folder=predictions,
            show_progress_bar=bars,
        )
        if outcome.exceptions or not outcome.task_results:
            raise RuntimeError(
                outcome.exceptions[0].exception if outcome.exceptions else "mteb returned no result"
            )
        return outcome.task_results[0]

    def _save_trec(self, task: Any, predictions: Path) -> None:
        """Write the ranking of a split as a TREC run, and its judgements as TREC qrels."""
        from mar_st.data.trec import read_run, write_qrels, write_run  # lazy: pyarrow

        split, subset = task.eval_splits[0], task.hf_subsets[0]
        data = task.dataset[subset][split] if subset in task.dataset else task.dataset[split]
        tag = str(self.meta.name).replace("/", "__")
        path = self._path("trec", task, ".trec")
        write_run(path, read_run(predictions, split=split, subset=subset), tag)
        write_qrels(path.with_suffix(".qrels"), data["relevant_docs"])

    def _entry(self, task: AbsTask, result: TaskResult) -> ScoreEntry:
        from medteb_mteb.report.scores import result_entry  # lazy: scipy

        metric, items = task.metadata.main_score, self._path("items", task)
        return result_entry(result, self.label, str(self.meta.revision), metric, items)


def _is_ranking(task: AbsTask) -> bool:
    return task.metadata.type in ("Retrieval", "Reranking")


def _fresh(task: AbsTask) -> AbsTask:
    """Return a copy with its own random state, so that a score does not depend on earlier tasks."""
    import numpy as np  # lazy: numpy

    copied = copy.copy(task)
    copied.rng_state, copied.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
    return copied


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: {text}"


def _quieten() -> None:
    """Keep warnings and progress bars of the libraries off stderr."""
    import datasets.utils.logging  # lazy: datasets
    import transformers.utils.logging  # lazy: transformers

    warnings.simplefilter("ignore")
    for name in ("mteb", "sentence_transformers", "transformers", "datasets", "bm25s", "jieba"):
        logging.getLogger(name).setLevel(logging.ERROR)
    datasets.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def as_text(outcome: RunOutcome) -> str:
    """Return the table and notes; what failed or was left out goes to stderr."""
    for task, reason in outcome.left_out.items():
        typer.echo(shown(f"medteb: left out: {task}: {reason}"), err=True)
    for line in outcome.errors:
        typer.echo(shown(f"medteb: failed: {line}"), err=True)
    table = outcome.table.to_markdown() if outcome.markdown else outcome.table.to_text()
    notes = ["[low, high]: 95 % bootstrap interval over the test items.", *outcome.table.notes()]
    return "\n".join([table, "", *(f"- {note}" if outcome.markdown else note for note in notes)])
