"""Scores of graded answers: the two published variants, with intervals, by system, axis and month.

The ratio of an answer is the sum of the points of the criteria that it meets over the sum of all positive
points. `clipped per case` is the mean of the ratios, each cut to [0, 1] (LiveMedBench's paper); `clipped
mean` is the mean of the ratios, cut to [0, 1] (its code, and HealthBench). They differ where answers make
more mistakes than they collect points. An answer that is missing has the ratio 0. A criterion without a
verdict is left out of the sums.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.labels.intervals import interval, rounded
from medteb_mteb.report.intervals import MeanSample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.rubrics.files import Criterion, Rubric

PER_CASE, MEAN = "clipped per case", "clipped mean"
#: Verdicts on the criteria of an answer: met, not met, or none.
Verdicts = tuple[bool | None, ...]


@dataclass(frozen=True)
class Score:
    """A score of a system, with its 95 % bootstrap interval over cases.

    Attributes:
        system: Name of the system.
        by: What the cases or criteria have in common: `axis`, `month`, or empty for all.
        value: The axis or month.
        cases: Number of cases.
        scores: Score, lower and upper end by variant; NaN where there is no interval.
    """

    system: str
    by: str
    value: str
    cases: int
    scores: dict[str, tuple[float, float, float]]

    @property
    def category(self) -> str:
        """Return the axis whose verdicts the score is made of; `all` for those of all axes."""
        return self.value if self.by == "axis" else "all"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        rows = {name: [rounded(number) for number in score] for name, score in self.scores.items()}
        return {"system": self.system, "by": self.by, "value": self.value, "cases": self.cases, **rows}


def ratio(criteria: Sequence[Criterion], verdicts: Verdicts) -> float:
    """Return the points of an answer over the points that it could have; NaN if it could have none."""
    judged = [(one.points, met) for one, met in zip(criteria, verdicts, strict=True) if met is not None]
    reachable = sum(points for points, _ in judged if points > 0)
    return sum(points for points, met in judged if met) / reachable if reachable else float("nan")


def variants(ratios: NDArray[np.float64]) -> dict[str, tuple[float, float, float]]:
    """Return both scores of some cases: the score and its 95 % bootstrap interval.

    Args:
        ratios: The ratio of each case, `(cases,)`.
    """
    clipped = np.clip(ratios, 0, 1)
    low, high = interval(MeanSample(ratios))
    # To cut is monotone: the ends of the interval of the cut mean are the cut ends.
    return {
        PER_CASE: (float(clipped.mean()), *interval(MeanSample(clipped))),
        MEAN: tuple(float(np.clip(number, 0, 1)) for number in (ratios.mean(), low, high)),  # type: ignore[dict-item]
    }


def scores_of(
    rubrics: Sequence[Rubric], verdicts: Mapping[str, Mapping[str, Verdicts]], systems: Sequence[str]
) -> list[Score]:
    """Return the scores of every system: all cases, by axis, by month.

    Args:
        rubrics: The rubrics.
        verdicts: Verdicts by system and id of the rubric; an answer that is not there is missing.
        systems: The systems.
    """
    rows = []
    for system in systems:
        groups: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for rubric in rubrics:
            given = verdicts[system].get(rubric.id, (False,) * len(rubric.criteria))
            groups["", ""].append(ratio(rubric.criteria, given))
            if rubric.month:
                groups["month", rubric.month].append(groups["", ""][-1])
            for axis in sorted({one.axis for one in rubric.criteria} - {""}):
                places = [place for place, one in enumerate(rubric.criteria) if one.axis == axis]
                own = [rubric.criteria[place] for place in places]
                groups["axis", axis].append(ratio(own, tuple(given[place] for place in places)))
        for (by, value), ratios in sorted(groups.items()):
            known = np.array([number for number in ratios if not np.isnan(number)])
            if len(known):
                rows.append(Score(system, by, value, len(known), variants(known)))
    return rows
