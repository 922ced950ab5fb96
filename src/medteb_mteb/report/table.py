"""The result table: models in rows, tasks in columns, each score with its interval."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.measures import ENOUGH_JUDGED, HOLES
from medteb_mteb.report.intervals import CONFIDENCE_LEVEL, RESAMPLES, SEED, bootstrap_interval
from medteb_mteb.report.page import markdown_table, probability, text_table, with_interval
from medteb_mteb.report.paired import Compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.report.intervals import Interval, Sample
    from medteb_mteb.report.paired import Comparison

_METRIC_NAMES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR"}


def labels(models: Sequence[tuple[str, str]]) -> list[str]:
    """Return names for the rows of a table: the model's, with its revision if several revisions share it.

    Args:
        models: Name and revision of each.
    """
    revisions = defaultdict(set)
    for name, revision in models:
        revisions[name].add(revision)
    return [name if len(revisions[name]) == 1 else f"{name}@{revision[:8]}" for name, revision in models]


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
        holes: The measures of `HOLES` on a retrieval task, None where unknown; None for other tasks.
        ids: Ids of the sample's items; empty if they are only known by their order.
        ranking: The system's ranking, a TREC or JSON run, or None.
        facts: What is known about the model: fields of mteb's `ModelMeta`.
        version: Version of mteb that measured the score; empty if unknown.
    """

    model: str
    model_revision: str
    task: str
    metric: str
    score: float
    dataset_revision: str
    sample: Sample | None = None
    note: str = ""
    holes: Mapping[str, float | None] | None = None
    ids: tuple[str, ...] = ()
    ranking: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    @cached_property
    def interval(self) -> Interval | None:
        """Return the bootstrap interval; None without scores per item, or with too few."""
        try:
            return None if self.sample is None else bootstrap_interval(self.sample)
        except ValueError:
            return None

    @property
    def shown(self) -> str:
        """Return the score with its interval as text."""
        if not math.isfinite(self.score):
            return "undefined"
        return with_interval(self.score, *(self.interval or (math.nan, math.nan)))

    @property
    def alike(self) -> tuple[Any, ...]:
        """Return what two scores must share to be compared: data, metric and items."""
        return self.dataset_revision, self.metric, self.ids, len(self.sample or ())

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON values; one that is undefined is null."""
        low, high = self.interval or (None, None)
        return {
            "metric": self.metric,
            "score": self.score if math.isfinite(self.score) else None,
            "low": low,
            "high": high,
            "items": None if self.sample is None else len(self.sample),
            "dataset_revision": self.dataset_revision,
            "note": self.note or None,
            "holes": None if self.holes is None else dict(self.holes),
        }


@dataclass
class ResultTable:
    """Scores of several models on several tasks.

    Attributes:
        models: Row order.
        tasks: Column order.
        entries: Measured scores; a missing pair shows as a dash.
        averages: Further averages: groups of tasks by name. An average is the mean of the means of its
            groups, and a dash unless all their tasks have a score.
    """

    models: list[str]
    tasks: list[str]
    entries: list[ScoreEntry]
    averages: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_key = {(entry.model, entry.task): entry for entry in self.entries}

    def mean(self, model: str, tasks: Sequence[str] | None = None) -> float | None:
        """Return the mean over some tasks, by default all; None unless each has a defined score."""
        names = self.tasks if tasks is None else tasks
        found = [self._by_key[model, task].score for task in names if (model, task) in self._by_key]
        scores = [score for score in found if math.isfinite(score)]
        return sum(scores) / len(scores) if scores and len(scores) == len(names) else None

    def average(self, model: str, name: str) -> float | None:
        """Return one of the further averages, or None unless every task of its groups has a defined score."""
        groups = self.averages[name]
        means = [mean for group in groups if (mean := self.mean(model, group)) is not None]
        return sum(means) / len(means) if len(means) == len(groups) else None

    def compared(self, task: str, baseline: str | None = None) -> list[Compared]:
        """Compare the models that were measured on the same items of a task, paired.

        Args:
            task: Name of the task.
            baseline: The second model of every pair; default: every two models.

        Returns:
            One for each version of the data that at least two models have scores per item on.
        """
        alike: dict[Any, dict[str, Sample]] = {}
        for model in self.models:
            entry = self._by_key.get((model, task))
            if entry is not None and entry.sample is not None and len(entry.sample) > 1:
                alike.setdefault(entry.alike, {})[model] = entry.sample
        several = [samples for samples in alike.values() if len(samples) > 1]
        return [
            Compared.of(
                {model: [sample] for model, sample in samples.items()},
                [np.arange(len(next(iter(samples.values()))))],
                baseline,
            )
            for samples in several
        ]

    @property
    def comparisons(self) -> list[tuple[str, str, str, Comparison]]:
        """Compare every two models: (task, first, other, first - other)."""
        return [
            (task, first, other, comparison)
            for task in self.tasks
            for one in self.compared(task)
            for (first, other), comparison in one.pairs.items()
        ]

    def to_markdown(self) -> str:
        """Return the table as GitHub Markdown."""
        return markdown_table(self.cells(), numbers=True)

    def to_text(self) -> str:
        """Return the table for a terminal."""
        return text_table(self.cells())

    def to_json(self) -> dict[str, Any]:
        """Return the table, the comparisons and how the intervals were made, as JSON values."""
        comparisons = [
            {"task": task, "model": first, "other": other, **compared._asdict()}
            for task, first, other, compared in self.comparisons
        ]
        return {**self.scores_to_json(), "comparisons": comparisons}

    def scores_to_json(self) -> dict[str, Any]:
        """Return the table and how the intervals were made, as JSON values."""
        rows = []
        for model in self.models:
            entries = {
                task: self._by_key[model, task] for task in self.tasks if (model, task) in self._by_key
            }
            rows.append(
                {
                    "model": model,
                    "model_revision": next((entry.model_revision for entry in entries.values()), None),
                    "scores": {task: entry.to_json() for task, entry in entries.items()},
                    "mean": self.mean(model),
                    "averages": {name: self.average(model, name) for name in self.averages},
                }
            )
        return {
            "interval": {"method": "percentile bootstrap over test items", "level": CONFIDENCE_LEVEL,
                         "resamples": RESAMPLES, "seed": SEED},
            "tasks": self.tasks,
            "rows": rows,
        }  # fmt: skip

    def notes(self) -> list[str]:
        """Return a line for each comparison, and for each score that needs an explanation."""
        lines = [
            f"{task}: {first} - {other} = {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}], "
            f"p {probability(c.p_value, relation=True)}"
            for task, first, other, c in self.comparisons
        ]
        for entry in self.entries:
            where = f"{entry.task}, {entry.model}"
            if entry.note:
                lines.append(f"{where}: no interval, {entry.note}")
            judged = None if entry.holes is None else entry.holes["judged_at_10"]
            if judged is not None and judged < ENOUGH_JUDGED:
                lines.append(
                    f"warning: {where}: only {judged:.1%} of the first 10 documents were judged; nDCG@10 "
                    "counts the others as wrong. Compare by condensed nDCG@10 and bpref, or have them judged "
                    "for a new version: `medteb edition extend EDITION --retriever MODEL --judges FILE "
                    "--out OUT`."
                )
        return lines

    def cells(self) -> list[list[str]]:
        """Return the table as texts; the first row is the header."""
        metrics = {entry.task: _metric_name(entry.metric) for entry in self.entries}
        # Without judged negatives, nothing is known about the ranking.
        holes = {
            entry.task
            for entry in self.entries
            if entry.holes is not None and any(value is not None for value in entry.holes.values())
        }
        means = ["mean"] if len(self.tasks) > 1 else []
        header = ["model"]
        for task in self.tasks:
            header += [f"{task} ({metrics[task]})" if task in metrics else task]
            header += HOLES.values() if task in holes else []
        rows = [[*header, *means, *self.averages]]
        for model in self.models:
            row = [model]
            for task in self.tasks:
                entry = self._by_key.get((model, task))
                row.append(entry.shown if entry else "-")
                if task in holes:
                    known = (entry.holes if entry else None) or {}
                    row += [_shown(known.get(name)) for name in HOLES]
            row += [_shown(self.mean(model)) for _ in means]
            rows.append(row + [_shown(self.average(model, name)) for name in self.averages])
        return rows


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _metric_name(metric: str) -> str:
    """Return the name of a score as it is usually written: ``ndcg_at_10`` -> ``nDCG@10``."""
    name, at, cut = metric.rpartition("_at_")
    return f"{_METRIC_NAMES.get(name, name)}@{cut}" if at else metric.replace("_", " ")
