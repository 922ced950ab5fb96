"""The tasks and benchmarks, made from tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import mteb
from mteb.benchmarks.benchmark import Benchmark, BenchmarkAggregation

from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.tasks.english import ENGLISH_TASKS, TYPES, english_tasks
from medteb_mteb.tasks.nano import NANO_TASKS, tasks_from_folders
from medteb_mteb.tasks.public import BUILT_TASKS, CMIRB_TASKS, EDITION_TASKS, REPLACED
from medteb_mteb.tasks.tables import cite, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.abstask import AbsTask

__all__ = ["BENCHMARKS", "REPLACED", "TASKS", "EditionBenchmark", "tasks_from_folders"]

TASKS: tuple[type[AbsTask], ...] = (*EDITION_TASKS, *NANO_TASKS, *CMIRB_TASKS, *BUILT_TASKS, *ENGLISH_TASKS)


_CITED = {"NANO": "hakari", "CMIRB": "cmirb", "MEDICAL": "cmirb", "BMRETRIEVER": "bmretriever"}


class EditionBenchmark(Benchmark):
    """A benchmark whose tasks are constructed when asked for, so that they follow `MEDTEB_DATA`.

    Attributes:
        task_names: Names of its tasks.
        averages: Averages that its paper reports in addition to the plain mean: groups of tasks by name. An
            average is the mean of the means of its groups.
    """

    def __init__(
        self, *, task_names: Sequence[str], averages: Mapping[str, Sequence[Sequence[str]]], **fields: Any
    ) -> None:
        self.task_names = tuple(task_names)
        self.averages = dict(averages)
        self._made: tuple[str | None, Sequence[AbsTask]] | None = None
        super().__init__(tasks=(), **fields)

    @property
    def tasks(self) -> Sequence[AbsTask]:
        """Return the tasks; the same objects until `MEDTEB_DATA` changes."""
        root = os.environ.get(DATA_VARIABLE)
        if self._made is None or self._made[0] != root:
            self._made = (root, mteb.get_tasks(tasks=list(self.task_names)))
        return self._made[1]

    @tasks.setter
    def tasks(self, tasks: Sequence[AbsTask]) -> None:
        # The dataclass assigns its field, and `available-benchmarks` a sorted copy.
        if tasks:
            self._made = (os.environ.get(DATA_VARIABLE), tasks)


def _make(variable: str, row: Mapping[str, Any]) -> EditionBenchmark:
    names, averages = row["tasks"], {}
    for title, number in row.get("averages", {}).items():
        averages[title] = [names[:number]]
    cited = _CITED.get(variable.partition("_")[0], "medteb")
    if names == "english":
        names, cited = list(english_tasks()), "medte"
        groups = {kind: [name for name in names if english_tasks()[name].type == kind] for kind in TYPES}
        averages = {**{kind: [group] for kind, group in groups.items()}, "by type": list(groups.values())}
    return EditionBenchmark(
        name=row["name"],
        display_name=row.get("display_name"),
        task_names=names,
        averages=averages,
        description=row["description"],
        reference=row["reference"],
        citation=cite(cited),
        aggregations=tuple(BenchmarkAggregation[name] for name in row["aggregations"]),
    )


#: By the variable name under which mteb's module of benchmarks will hold them.
BENCHMARKS: Mapping[str, EditionBenchmark] = {
    variable: _make(variable, row) for variable, row in table("benchmarks").items()
}
