"""One model of `medteb run`: evaluation with mteb, saved results, scores per item."""

from __future__ import annotations

import copy
import math
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
from mteb.cache import ResultCache
from mteb.results import TaskResult

from mar_st.files import make_folder, move_file
from medteb_mteb.abstasks.judged import JudgedRetrieval
from medteb_mteb.commands.errors import UserError
from medteb_mteb.editions import EditionError
from medteb_mteb.folders import FolderError
from medteb_mteb.report import (
    DATA_UNREADABLE,
    Holes,
    NoItemScoresError,
    ScoreEntry,
    item_scores,
    load_item_scores,
    save_item_scores,
    save_no_item_scores,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.models import ModelMeta
    from mteb.types import EncodeKwargs

__all__ = ["ModelRun", "OptionalTasks", "RunOptions", "run_model"]

#: mteb's file of run settings, beside the results.
_SETTINGS = "run_settings.jsonl"


@dataclass(frozen=True)
class RunOptions:
    """Options of one run.

    Attributes:
        data: Data folders to evaluate on.
        tasks: Names of tasks known to mteb.
        benchmarks: Names of benchmarks known to mteb.
        models: Names of models, or local model folders.
        output: Folder of results in mteb's own layout, and of scores per item.
        overwrite: Evaluate again even if results exist.
        batch_size: Texts encoded at once.
        device: Torch device, None for the best one available.
        save_predictions: Also keep mteb's predictions (runs, similarities).
        random_weights: Seed for model folders that hold only a configuration.
        quiet: Show no progress on stderr.
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


class _NoDataError(Exception):
    """The data of a task are not available."""


@dataclass
class OptionalTasks:
    """Tasks that may be left out, and those that were, with the reason."""

    optional: frozenset[str]
    reasons: dict[str, str] = field(default_factory=dict)

    def load(self, task: AbsTask) -> None:
        """Load a task's data; damaged data are an error, unavailable data leave the task out."""
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
class ModelRun:
    """One model in a run.

    Attributes:
        options: Options of the run.
        cache: Results in mteb's layout.
        meta: The model's metadata.
        label: Name in the table.
        model: The model, or None until it is loaded.
    """

    options: RunOptions
    cache: ResultCache
    meta: ModelMeta
    label: str
    model: Any = None

    def load(self) -> Any:
        """Return the model, loaded at first use; not needed if every result is saved already."""
        if self.model is None:
            self.model = self.meta.load_model(device=self.options.device)
        return self.model

    def path(self, kind: str, task: AbsTask) -> Path:
        """Return the path of a file about this model and task, beside mteb's result."""
        result = self.cache.get_task_result_path(task.metadata.name, self.meta)
        return self.options.output / kind / result.relative_to(self.cache.cache_path / "results")

    @property
    def shows_bars(self) -> bool:
        """Return True on a terminal, unless the run is quiet; logs stay readable."""
        return sys.stderr.isatty() and not self.options.quiet

    def say(self, text: str) -> None:
        """Write a line to stderr, unless the run is quiet."""
        if not self.options.quiet:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def run_model(
    model_run: ModelRun,
    tasks: Sequence[AbsTask],
    entries: list[ScoreEntry],
    errors: list[str],
    left_out: OptionalTasks,
) -> None:
    """Evaluate one model on all tasks, reusing saved results; a failure does not stop the others.

    Args:
        model_run: The model.
        tasks: The tasks.
        entries: Receives the scores.
        errors: Receives a line per failure.
        left_out: Tasks whose data may be missing.
    """
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
            if not model_run.shows_bars:
                model_run.say(f"{model_run.label}  {name}: started")
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


def _existing(model_run: ModelRun, task: AbsTask) -> TaskResult | None:
    """Return the saved result if it is complete, of the same data, and has the requested predictions."""
    if model_run.options.overwrite:
        return None
    try:
        saved = model_run.cache.load_task_result(task.metadata.name, model_run.meta)
    except Exception as error:  # which one depends on the damage
        model_run.say(
            f"{model_run.label}  {task.metadata.name}: the saved result is damaged ({_one_line(error)}); "
            "evaluating again"
        )
        return None
    if saved is None:
        return None
    # mteb reuses a complete result whatever data it was measured on.
    if saved.dataset_revision != task.metadata.revision:
        model_run.say(
            f"{model_run.label}  {task.metadata.name}: the saved result is of other data "
            f"({saved.dataset_revision[:12]}); evaluating on {task.metadata.revision[:12]}"
        )
        return None
    if saved.get_missing_evaluations(task):
        return None
    saved = saved.validate_and_filter_scores(task)  # the file may hold further splits and subsets
    if wrong := [one for one in _main_scores(saved) if not _is_finite(one)]:
        model_run.say(
            f"{model_run.label}  {task.metadata.name}: the saved main score is not a finite number "
            f"({wrong[0]!r}); evaluating again"
        )
        return None
    if model_run.options.save_predictions and not model_run.path("predictions", task).is_file():
        model_run.say(f"{model_run.label}  {task.metadata.name}: saved without predictions; evaluating again")
        return None
    return saved


def _main_scores(result: TaskResult) -> list[Any]:
    return [scores["main_score"] for split in result.scores.values() for scores in split]


def _is_finite(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)


def _evaluate(model_run: ModelRun, task: AbsTask) -> tuple[TaskResult, str]:
    """Run one loaded task, save the result and the scores per item; return the reason if there are none.

    mteb would unload the data of a task that it has loaded itself, and the scores per item need them.
    """
    options = model_run.options
    progress = model_run.shows_bars
    encode_kwargs: EncodeKwargs = {"batch_size": options.batch_size, "show_progress_bar": progress}
    with tempfile.TemporaryDirectory(prefix=".predictions-", dir=options.output) as scratch:
        outcome = mteb.evaluate(
            model_run.load(),
            task,
            co2_tracker=False,
            cache=None,
            encode_kwargs=encode_kwargs,
            prediction_folder=scratch,
            show_progress_bar=progress,
        )
        if outcome.exceptions or not outcome.task_results:
            reason = outcome.exceptions[0].exception if outcome.exceptions else "mteb returned no result"
            raise RuntimeError(reason)
        staged = _staged(model_run, outcome.task_results[0], encode_kwargs, Path(scratch))
        # The saved result is rounded; using it makes new and reused scores equal.
        result = TaskResult.from_disk(staged)
        note = ""
        items = model_run.path("items", task)
        try:
            save_item_scores(items, item_scores(task, Path(scratch), result.get_score()))
        except NoItemScoresError as error:
            note = str(error)
            save_no_item_scores(items, task, note)
        if options.save_predictions and (saved := Path(scratch) / task.prediction_file_name).is_file():
            target = model_run.path("predictions", task)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(saved, target)
        # The result comes last: a task that has one is not evaluated again, so its other files must be there.
        folder = model_run.cache.get_task_result_path(task.metadata.name, model_run.meta).parent
        make_folder(folder)
        for file in (staged.with_name(_SETTINGS), staged.with_name("model_meta.json"), staged):
            move_file(file, folder / file.name)
    return result, note


def _staged(model_run: ModelRun, result: TaskResult, encode_kwargs: EncodeKwargs, scratch: Path) -> Path:
    """Save a result in a folder of its own; mteb writes in place, so a kill could leave half a file.

    Returns:
        Path of the result, beside the model's metadata and the settings of this and all earlier runs.
    """
    cache = ResultCache(scratch)
    path = cache.get_task_result_path(result.task_name, model_run.meta)
    earlier = model_run.cache.get_task_result_path(result.task_name, model_run.meta).with_name(_SETTINGS)
    path.parent.mkdir(parents=True)
    if earlier.is_file():
        shutil.copyfile(earlier, path.with_name(_SETTINGS))
    cache.save_to_cache(result, model_run.meta, encode_kwargs=encode_kwargs)
    return path


def _fresh(task: AbsTask) -> AbsTask:
    """Return a copy with its own random state, so that a score does not depend on earlier tasks."""
    copied = copy.copy(task)
    copied.rng_state, copied.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
    return copied


def _entry(model_run: ModelRun, task: AbsTask, result: TaskResult, note: str = "") -> ScoreEntry:
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
    return ScoreEntry(
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
    if getattr(task, "local_copy", task) is None:
        return Holes()  # the Hub's data list no negatives
    try:
        task.load_data()  # a result without these scores does not say whether the data list the negatives
    except Exception:  # the result is complete, whether or not its data can be read again
        return Holes(reason=DATA_UNREADABLE)
    return Holes.of_scores(scores, task.judged.known)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (
        text
        if isinstance(error, (UserError, ValueError, RuntimeError))
        else f"{type(error).__name__}: {text}"
    )
