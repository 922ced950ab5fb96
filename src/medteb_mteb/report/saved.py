"""Saved results of `medteb run`, summarised as in the paper on English MedTEB: by source, against time."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mar_st.files import JsonError, read_json
from medteb_mteb.english.table import english_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["SavedScore", "SourceMean", "TimedScore", "against_time", "means_by_source", "read_saved"]


@dataclass(frozen=True)
class SavedScore:
    """A saved result.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        score: The main score.
        seconds: Time of the evaluation; None if the result does not say.
    """

    model: str
    task: str
    score: float
    seconds: float | None


@dataclass(frozen=True)
class SourceMean:
    """Mean over the tasks of a source.

    Attributes:
        score: The mean.
        tasks: Number of the source's tasks with a score.
        of: Number of all tasks of the source.
    """

    score: float
    tasks: int
    of: int


@dataclass(frozen=True)
class TimedScore:
    """Time and score of a model over the tasks that all models were measured on.

    Attributes:
        seconds: Mean time of an evaluation.
        score: Mean score.
        tasks: Number of tasks.
    """

    seconds: float
    score: float
    tasks: int


def read_saved(folder: Path) -> list[SavedScore]:
    """Return the results in the output folder of `medteb run`, in order of model and task.

    Raises:
        ValueError: There are no results, or a file is damaged.
    """
    results: dict[tuple[str, str], SavedScore] = {}
    for path in sorted((folder / "results").glob("*/*/*.json")):
        if path.name == "model_meta.json":
            continue
        try:
            content = read_json(path)
            scores = [one["main_score"] for split in content["scores"].values() for one in split]
            seconds = content.get("evaluation_time")
            one = SavedScore(
                path.parts[-3].replace("__", "/"),
                str(content["task_name"]),
                fmean(map(_number, scores)),
                None if seconds is None else _number(seconds),
            )
        except (JsonError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path} is not a result that mteb saved ({error})") from None
        if (one.model, one.task) in results:
            raise ValueError(
                f"{folder} holds results of several revisions of {one.model} on {one.task}; keep one"
            )
        results[one.model, one.task] = one
    if not results:
        raise ValueError(f"{folder}: no results; give the output folder of `medteb run`")
    return list(results.values())


def means_by_source(saved: Sequence[SavedScore]) -> dict[str, dict[str, SourceMean]]:
    """Return means over the tasks of every source of English MedTEB, by model and source.

    Results of other tasks are ignored; sources without a result are left out.
    """
    sizes: dict[str, int] = {}
    for task in english_tasks().values():
        sizes[task.source] = sizes.get(task.source, 0) + 1
    groups: dict[str, dict[str, list[float]]] = {}
    for one in saved:
        if one.task in english_tasks():
            source = english_tasks()[one.task].source
            groups.setdefault(one.model, {}).setdefault(source, []).append(one.score)
    return {
        model: {
            source: SourceMean(fmean(scores), len(scores), sizes[source]) for source, scores in rows.items()
        }
        for model, rows in groups.items()
    }


def against_time(saved: Sequence[SavedScore]) -> dict[str, TimedScore]:
    """Return mean time and mean score of every model over the tasks that all of them have.

    Raises:
        ValueError: No task was measured with all models, or a result on such a task has no evaluation time.
    """
    by_model: dict[str, dict[str, SavedScore]] = {}
    for one in saved:
        by_model.setdefault(one.model, {})[one.task] = one
    tasks = [set(results) for results in by_model.values()]
    common = set.intersection(*tasks) if tasks else set()
    if not common:
        raise ValueError("no task was measured with all models; run them on the same tasks")

    def means(results: Mapping[str, SavedScore]) -> TimedScore:
        return TimedScore(
            fmean(_seconds(results[task]) for task in common),
            fmean(results[task].score for task in common),
            len(common),
        )

    return {model: means(results) for model, results in by_model.items()}


def _seconds(one: SavedScore) -> float:
    if one.seconds is None:
        raise ValueError(
            f"the result of {one.model} on {one.task} has no evaluation_time; run it again with --overwrite"
        )
    return one.seconds


def _number(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"expected a finite number, got {number}; run the task again, or delete the file")
    return number
