"""The result table: models in rows, tasks in columns, each score with its interval."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.report.holes import HEADERS
from medteb_mteb.report.intervals import CONFIDENCE_LEVEL, RESAMPLES, SEED, bootstrap_interval, compare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from medteb_mteb.report.holes import Holes
    from medteb_mteb.report.intervals import Comparison, Interval, Sample

__all__ = ["ResultTable", "ScoreEntry"]

_METRIC_NAMES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR"}


@dataclass(frozen=True)
class ScoreEntry:
    """One model's score on one task.

    Attributes:
        model: Name shown in the row.
        model_revision: Revision of the model.
        task: Name of the task.
        metric: mteb's name of the main score.
        score: The main score.
        dataset_revision: Revision of the data.
        sample: Per-item scores, or None.
        note: Why there is no interval, or empty.
        holes: How much of the ranking of a retrieval task was judged; None for other tasks.
    """

    model: str
    model_revision: str
    task: str
    metric: str
    score: float
    dataset_revision: str
    sample: Sample | None = None
    note: str = ""
    holes: Holes | None = None


@dataclass
class ResultTable:
    """Scores of several models on several tasks.

    Attributes:
        models: Row order.
        tasks: Column order.
        entries: Measured scores; a missing pair shows as a dash.
        averages: Further averages: groups of tasks by name. An average is the mean of the means of its
            groups, and a dash unless all their tasks have a score.
        differs: Differences between the data of a task and the published ones, by task.
    """

    models: list[str]
    tasks: list[str]
    entries: list[ScoreEntry]
    averages: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    _intervals: dict[tuple[str, str], Interval | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._by_key = {(entry.model, entry.task): entry for entry in self.entries}

    def entry(self, model: str, task: str) -> ScoreEntry | None:
        """Return the entry of a pair, or None."""
        return self._by_key.get((model, task))

    def interval(self, model: str, task: str) -> Interval | None:
        """Return the bootstrap interval of a pair, or None."""
        key = (model, task)
        if key not in self._intervals:
            entry = self._by_key.get(key)
            try:
                interval = bootstrap_interval(entry.sample) if entry and entry.sample is not None else None
            except ValueError:  # too few items
                interval = None
            self._intervals[key] = interval
        return self._intervals[key]

    def mean(self, model: str) -> float | None:
        """Return the plain mean over the tasks, or None unless every task has a defined score."""
        return self._mean(model, self.tasks)

    def _mean(self, model: str, tasks: Sequence[str]) -> float | None:
        entries = [self.entry(model, task) for task in tasks]
        scores = [entry.score for entry in entries if entry is not None and math.isfinite(entry.score)]
        return sum(scores) / len(scores) if scores and len(scores) == len(tasks) else None

    def average(self, model: str, name: str) -> float | None:
        """Return one of the further averages, or None unless every task of its groups has a defined score.

        Args:
            model: The model.
            name: Name of the average.
        """
        groups = self.averages[name]
        means = [mean for group in groups if (mean := self._mean(model, group)) is not None]
        return sum(means) / len(means) if len(means) == len(groups) else None

    def comparisons(self) -> list[tuple[str, str, str, Comparison]]:
        """Compare the first model with every other, paired: (task, first, other, first - other)."""
        return [(*key, compared) for key, compared in self._compared.items() if compared is not None]

    @functools.cached_property
    def _compared(self) -> dict[tuple[str, str, str], Comparison | None]:
        """The comparisons by task, first and other model; None for one that is undefined."""
        compared: dict[tuple[str, str, str], Comparison | None] = {}
        for task in self.tasks:
            first = self.entry(self.models[0], task)
            for model in self.models[1:]:
                other = self.entry(model, task)
                if first is None or other is None or first.sample is None or other.sample is None:
                    continue
                same = first.dataset_revision == other.dataset_revision and first.metric == other.metric
                if same and len(first.sample) == len(other.sample) > 1:
                    try:
                        comparison = compare(first.sample, other.sample)
                    except ValueError:  # a score is undefined in most resamples
                        comparison = None
                    compared[task, first.model, model] = comparison
        return compared

    def to_rich(self, title: str | None = None) -> Table:
        """Return the table for a terminal."""
        from rich.table import Table  # lazy: rich

        header, *rows = self._cells()
        table = Table(title=title, header_style="bold")
        for index, cell in enumerate(header):
            table.add_column(
                cell.replace(" (", "\n("), justify="left" if index == 0 else "right", overflow="fold"
            )
        for row in rows:
            table.add_row(*(cell.replace(" [", "\n\\[") for cell in row))
        return table

    def to_markdown(self) -> str:
        """Return the table as GitHub Markdown."""
        header, *rows = self._cells()
        rule = ["---", *["---:"] * (len(header) - 1)]
        return "\n".join("| " + " | ".join(cell for cell in row) + " |" for row in (header, rule, *rows))

    def to_json(self) -> dict[str, Any]:
        """Return the table, the comparisons and how the intervals were made, as JSON values.

        A score that is undefined (a correlation of pairs that are all equal) is null.
        """
        rows = []
        for model in self.models:
            scores = {task: self._json_cell(model, task) for task in self.tasks if self.entry(model, task)}
            first = next((entry for task in self.tasks if (entry := self.entry(model, task))), None)
            rows.append(
                {
                    "model": model,
                    "model_revision": first.model_revision if first else None,
                    "scores": scores,
                    "mean": self.mean(model),
                    "averages": {name: self.average(model, name) for name in self.averages},
                }
            )
        content = {
            "schema_version": 1,
            "interval": {"method": "percentile bootstrap over test items", "level": CONFIDENCE_LEVEL,
                         "resamples": RESAMPLES, "seed": SEED},
            "tasks": self.tasks,
            "differs": dict(self.differs),
            "rows": rows,
            "comparisons": [
                {"task": task, "model": first, "other": other, "difference": c.difference, "low": c.low,
                 "high": c.high, "p_value": c.p_value}
                for task, first, other, c in self.comparisons()
            ],
        }  # fmt: skip
        strict: dict[str, Any] = _without_nan(content)
        return strict

    def comparison_lines(self) -> list[str]:
        """Return the comparisons as text, one per line."""
        return [
            f"{task}: {first} - {other} = {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}], "
            f"p = {c.p_value:.4f}"
            for task, first, other, c in self.comparisons()
        ]

    def notes(self) -> list[str]:
        """Return which tasks have other data than published, and why intervals or comparisons are missing."""
        differs = [f"{task}: not the published data: {text}" for task, text in self.differs.items()]
        undefined = [
            f"{task}: {first} - {other}: no comparison, a score is undefined in most resamples"
            for (task, first, other), comparison in self._compared.items()
            if comparison is None
        ]
        no_interval = [f"{e.task}, {e.model}: no interval, {e.note}" for e in self.entries if e.note]
        return differs + no_interval + undefined

    def warnings(self) -> list[str]:
        """Return one line for each score based on too few judgements, or on an unknown number."""
        lines = []
        for entry in self.entries:
            if entry.holes is None:
                continue
            where = f"{entry.task}, {entry.model}"
            if entry.holes.reason:
                lines.append(f"{where}: judged@10 {entry.holes.reason}")
            elif text := entry.holes.warning():
                lines.append(f"warning: {where}: {text}")
        return lines

    def _json_cell(self, model: str, task: str) -> dict[str, Any]:
        entry = self._by_key[model, task]
        interval = self.interval(model, task)
        return {
            "metric": entry.metric,
            "score": entry.score,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "items": interval.items if interval else None,
            "dataset_revision": entry.dataset_revision,
            "note": entry.note or None,
            "holes": entry.holes.to_json() if entry.holes is not None else None,
        }

    def _cells(self) -> list[list[str]]:
        with_mean = len(self.tasks) > 1
        metrics = {entry.task: _metric_name(entry.metric) for entry in self.entries}
        header = ["model"]
        for task in self.tasks:
            header.append(f"{task} ({metrics[task]})" if task in metrics else task)
            header += self._hole_headers(task)
        rows = [header + ["mean"] * with_mean + list(self.averages)]
        for model in self.models:
            row = [model]
            for task in self.tasks:
                row.append(self._cell(model, task))
                row += self._hole_cells(model, task)
            if with_mean:
                row.append(_shown(self.mean(model)))
            rows.append(row + [_shown(self.average(model, name)) for name in self.averages])
        return rows

    def _hole_headers(self, task: str) -> list[str]:
        """Return all measures if a model has them, or a single column if they are not known."""
        task_holes = [entry.holes for entry in self.entries if entry.task == task and entry.holes is not None]
        if not task_holes:
            return []
        return list(HEADERS if any(holes.judged is not None for holes in task_holes) else HEADERS[:1])

    def _hole_cells(self, model: str, task: str) -> list[str]:
        entry, headers = self.entry(model, task), self._hole_headers(task)
        cells = entry.holes.cells() if entry is not None and entry.holes is not None else ["-"] * len(HEADERS)
        return cells[: len(headers)]

    def _cell(self, model: str, task: str) -> str:
        entry = self.entry(model, task)
        if entry is None:
            return "-"
        if not math.isfinite(entry.score):
            return "undefined"
        interval = self.interval(model, task)
        if interval is None:
            return f"{entry.score:.4f}"
        return f"{entry.score:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def _shown(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.4f}"


def _metric_name(metric: str) -> str:
    """Return the name of a score as it is usually written: ``ndcg_at_10`` -> ``nDCG@10``."""
    name, at, cut = metric.rpartition("_at_")
    if at:
        return f"{_METRIC_NAMES.get(name, name)}@{cut}"
    return metric.replace("_", " ")


def _without_nan(value: Any) -> Any:
    """Return JSON values with None in place of floats that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
