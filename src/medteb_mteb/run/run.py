"""`medteb run`: evaluate models on tasks with mteb, and make the table of scores."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Settings, Switch, shown
from medteb_mteb.folders.content import TaskFolder, read_folder
from medteb_mteb.folders.layout import is_nano
from medteb_mteb.folders.live import Month, data_folders
from medteb_mteb.run.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.abstasks.aggregated_task import AbsTaskAggregate
    from mteb.models import ModelMeta

    from medteb_mteb.report.table import ResultTable, ScoreEntry


class RunSettings(Settings):
    """Options of a run."""

    models: Annotated[tuple[str, ...], Switch("-m", "--model")] = Field(
        min_length=1, description="Model known to mteb, a model folder, or a run (*.trec); may be repeated."
    )
    data: tuple[Path, ...] = Field(
        (), description="Data folder in the Hub layout, or a live edition; may be repeated."
    )
    since: Month | None = Field(None, description="First month of a live edition's slices, e.g. 2026-10.")
    until: Month | None = Field(None, description="Last month of a live edition's slices.")
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
    given = data_folders(settings.data, settings.since, settings.until)
    folders = [folder if is_nano(folder) else read_folder(folder) for folder in given]
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
        entries += Runner(settings, cache, meta, label, outcome, optional).entries(tasks)
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
    from medteb_mteb.models.local import (
        resolve_model,  # lazy: mteb
        run_meta,  # lazy: mteb
    )

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
    """Return row names.

    Raises:
        MarError: A model is given twice.
    """
    from medteb_mteb.report.table import labels  # lazy: scipy

    names = labels([(str(meta.name), str(meta.revision)) for meta in metas])
    if len(set(names)) < len(names):
        raise MarError(f"A model is given twice: {', '.join(names)}.")
    return names


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
