"""The scores of a site: a cell per system and task, pairs of systems, and queries that tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from medteb_mteb.compare.analysis import AVERAGE
from medteb_mteb.report.intervals import MeanSample, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from medteb_mteb.compare.analysis import Analysis
    from medteb_mteb.report.paired import Compared, Comparison
    from medteb_mteb.report.table import ScoreEntry

#: Up to this many systems, every two have a page; of more, neighbours, and the best with this many in all.
ALL_PAIRS = 12
#: Number of queries to show on which one of two systems is the better one.
MOST_GAPS = 10
#: Scores of two systems on a query are counted in steps of one tenth.
STEPS = 10


class Cell(NamedTuple):
    """A score with its interval and its tie group, None where unknown."""

    score: float
    low: float | None
    high: float | None
    group: int | None


class Gap(NamedTuple):
    """A query and the scores of two systems on it."""

    task: str
    query: str
    first: float
    second: float


@dataclass(frozen=True)
class Pair:
    """Two systems.

    Attributes:
        first: The one with the higher mean.
        second: The other one.
        tasks: Both scores and, if the items are the same, the comparison, by task and for `AVERAGE`.
        better: Queries on which the first is better, the largest difference first.
        worse: Queries on which it is worse, likewise.
        counts: Queries by score of first and second, `(STEPS + 1, STEPS + 1)` whole numbers.
    """

    first: str
    second: str
    tasks: dict[str, tuple[float, float, Comparison | None, float | None]]
    better: list[Gap]
    worse: list[Gap]
    counts: NDArray[np.intp]


class Board:
    """Scores and comparisons, looked up by system and task."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis, self.table = analysis, analysis.table
        self._compared: dict[str, list[Compared]] = {}
        for task, one in analysis.compared:
            self._compared.setdefault(task, []).append(one)

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """Return the cells by system and task, and by system and `AVERAGE`.

        If systems were measured on several versions of the data, only the version of most systems has tie
        groups.
        """
        cells = {}
        for entry in self.table.entries:
            cells[entry.model, entry.task] = self._cell(entry.model, entry.task, entry.score, entry)
        for system in self.table.models:
            mean = self.table.mean(system)
            if mean is not None:
                cells[system, AVERAGE] = self._cell(system, AVERAGE, mean)
        return cells

    def _cell(self, system: str, task: str, score: float, entry: ScoreEntry | None = None) -> Cell:
        compared = max(self._compared.get(task, ()), key=lambda one: len(one.drawn), default=None)
        if compared is not None and system in compared.drawn:
            # These resamples are the ones of the score's own interval, which need not be drawn again.
            low, high = quantiles(compared.drawn[system].resampled)
            return Cell(score, low, high, compared.groups[system])
        own = entry.interval if entry is not None else None
        return Cell(score, own.low, own.high, None) if own else Cell(score, None, None, None)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs that have a page, the better one first."""
        models = self.table.models
        if len(models) <= ALL_PAIRS:
            return list(combinations(models, 2))
        with_best = [(models[0], other) for other in models[1:ALL_PAIRS]]
        return [*with_best, *pairwise(models[1:])]

    def pair(self, first: str, second: str) -> Pair:
        """Compare two systems."""
        tasks = {}
        gaps: list[Gap] = []
        counts = np.zeros((STEPS + 1, STEPS + 1), dtype=np.intp)
        for task in (*self.table.tasks, AVERAGE):
            one, other = self.cells.get((first, task)), self.cells.get((second, task))
            if one is not None and other is not None:
                found = self._comparison(task, first, second)
                tasks[task] = one.score, other.score, *found
                gaps += self._gaps(task, first, second, counts)
        gaps.sort(key=lambda gap: gap.second - gap.first)
        better = [gap for gap in gaps[:MOST_GAPS] if gap.first > gap.second]
        worse = [gap for gap in gaps[: -MOST_GAPS - 1 : -1] if gap.first < gap.second]
        return Pair(first, second, tasks, better, worse, counts)

    def _comparison(self, task: str, first: str, second: str) -> tuple[Comparison | None, float | None]:
        for one in self._compared.get(task, ()):
            if (first, second) in one.pairs:
                return one.pairs[first, second], one.adjusted[first, second]
        return None, None

    def _gaps(self, task: str, first: str, second: str, counts: NDArray[np.intp]) -> Iterator[Gap]:
        """Count the queries of a task by both scores, and yield those that differ most."""
        one, other = self.analysis.entry(first, task), self.analysis.entry(second, task)
        if one is None or other is None or not one.ids or one.alike != other.alike:
            return
        if not isinstance(one.sample, MeanSample) or not isinstance(other.sample, MeanSample):
            return
        values = one.sample.values, other.sample.values
        places = [np.rint(np.clip(some, 0, 1) * STEPS).astype(np.intp) for some in values]
        np.add.at(counts, (places[0], places[1]), 1)
        order = np.argsort(values[1] - values[0], kind="stable")
        for place in {*order[:MOST_GAPS].tolist(), *order[-MOST_GAPS:].tolist()}:
            yield Gap(task, one.ids[place], float(values[0][place]), float(values[1][place]))
