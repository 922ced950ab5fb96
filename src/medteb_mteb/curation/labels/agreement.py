"""Agreement of judges: Fleiss' kappa, Krippendorff's alpha, Gwet's AC1, confusion of every two judges.

All three compare the observed agreement with that expected by chance, `(a - e) / (1 - e)`, and differ in how
they estimate the chance. If nearly all pairs have one label, kappa and alpha are low even though the judges
agree; AC1 is not.

Sources: J. L. Fleiss, Psychological Bulletin 76 (1971); K. Krippendorff, Content Analysis (2018), chapter 12;
K. L. Gwet, British Journal of Mathematical and Statistical Psychology 61 (2008), equations 6 to 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES, by_pair, value
from medteb_mteb.curation.labels.intervals import exact_interval, interval, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.grades import Judgement

__all__ = ["Agreement", "IntervalEstimate", "agreement", "fleiss_kappa", "gwet_ac1", "krippendorff_alpha"]

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]
Times: TypeAlias = "NDArray[np.float64] | NDArray[np.int64] | None"
Coefficients: TypeAlias = "Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]"


def fleiss_kappa(counts: NDArray[np.int64], times: Times = None) -> float:
    """Return Fleiss' kappa of `(items, categories)` counts of ratings.

    Items with fewer ratings than the item with most are left out.

    Args:
        counts: Number of ratings of each item in each category.
        times: Weight of each item, `(items,)`; default 1.

    Returns:
        The coefficient; NaN if all ratings are in one category.
    """
    return _of_one_weighting(_fleiss_kappas, counts, times)


def gwet_ac1(counts: NDArray[np.int64], times: Times = None) -> float:
    """Return Gwet's AC1 of `(items, categories)` counts of ratings, whose number may differ by item.

    Args:
        counts: Number of ratings of each item in each category.
        times: Weight of each item, `(items,)`; default 1.
    """
    return _of_one_weighting(_gwet_ac1s, counts, times)


def krippendorff_alpha(counts: NDArray[np.int64], level: Level = "nominal", times: Times = None) -> float:
    """Return Krippendorff's alpha of `(items, categories)` counts of ratings; categories in order.

    Args:
        counts: Number of ratings of each item in each category; items with one rating or none do not count.
        level: `nominal`: categories are equal or not. `ordinal`: distance by the ratings between two
            categories. `interval`: by their positions.
        times: Weight of each item, `(items,)`; default 1.

    Returns:
        The coefficient; NaN if all ratings are in one category.
    """
    return _of_one_weighting(partial(_krippendorff_alphas, level=level), counts, times)


def _of_one_weighting(coefficients: Coefficients, counts: NDArray[np.int64], times: Times) -> float:
    weights = np.ones(len(counts)) if times is None else np.asarray(times, dtype=float)
    return float(coefficients(counts, weights[None])[0])


def _fleiss_kappas(counts: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coefficient under each of `(weightings, items)` weights, as the next functions do."""
    number = counts.sum(1)
    most = int(number.max(initial=0))
    if most < 2:
        return np.full(len(weights), np.nan)
    complete = number == most
    counts, weights = counts[complete], weights[:, complete]
    observed = _means(((counts**2).sum(1) - most) / (most * (most - 1)), weights)
    shares = _ratio(weights @ counts, weights.sum(1, keepdims=True) * most)
    return _beyond_chance(observed, (shares**2).sum(1))


def _gwet_ac1s(counts: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    observed = _observed_agreements(counts, weights)
    if counts.shape[1] < 2:
        return np.full(len(weights), np.nan)
    rated = counts.sum(1) > 0
    counts, weights = counts[rated], weights[:, rated]
    shares = _ratio(weights @ (counts / counts.sum(1, keepdims=True)), weights.sum(1, keepdims=True))
    return _beyond_chance(observed, (shares * (1 - shares)).sum(1) / (counts.shape[1] - 1))


def _krippendorff_alphas(
    counts: NDArray[np.int64], weights: NDArray[np.float64], level: Level
) -> NDArray[np.float64]:
    several = counts.sum(1) > 1
    paired, weights = counts[several].astype(float), weights[:, several]
    # Coincidences: every ordered pair of ratings of an item, weighted by 1 / (ratings - 1).
    pairs = paired[:, :, None] * paired[:, None, :] - paired[:, :, None] * np.eye(paired.shape[1])
    pairs /= (paired.sum(1) - 1)[:, None, None]
    coincidences = np.tensordot(weights, pairs, axes=1)
    totals = coincidences.sum(2)
    distance = _distance(totals, level)
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum((1, 2))
    observed = (coincidences * distance).sum((1, 2)) * (totals.sum(1) - 1)
    return np.asarray(1 - _ratio(observed, expected))


def _distance(totals: NDArray[np.float64], level: Level) -> NDArray[np.float64]:
    """Return the distance of every two categories, `(1 or weightings, categories, categories)`."""
    positions = np.arange(totals.shape[1])[None]
    if level == "nominal":
        return np.asarray(positions[:, :, None] != positions[:, None, :], dtype=float)
    if level == "interval":
        return np.asarray((positions[:, :, None] - positions[:, None, :]) ** 2, dtype=float)
    ranks = totals.cumsum(1) - totals / 2  # middle of a category on the line of all ratings
    return np.asarray((ranks[:, :, None] - ranks[:, None, :]) ** 2)


def _means(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return _ratio(weights @ values, weights.sum(1))


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quotient; NaN where the denominator is 0."""
    quotient = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator != 0)
    return quotient


def _beyond_chance(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    coefficients = np.full(len(observed), np.nan)
    np.divide(observed - expected, 1 - expected, out=coefficients, where=expected < 1)
    return coefficients


@dataclass(frozen=True)
class IntervalEstimate:
    """A coefficient with its 95 % percentile bootstrap interval over queries.

    For an agreement of 0 or 1 the interval is exact (Clopper-Pearson), with as many trials as queries.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """Agreement of judges on a set of pairs.

    Attributes:
        judges: Names of the judges, sorted.
        pairs: Number of pairs that two or more judges have graded.
        complete: Number of pairs that all judges have graded.
        labels: Coefficients of positive against negative: `agreement` (share of equal ratings among two
            judges), `fleiss_kappa`, `krippendorff_alpha`, `gwet_ac1`.
        grades: The same for the letters; alpha treats them as ordered.
        confusion: For every two judges the `(5, 5)` counts: rows the first judge's grades, S to D.
        positive_rate: Share of positives among the grades of each judge.
    """

    judges: list[str]
    pairs: int
    complete: int
    labels: dict[str, IntervalEstimate]
    grades: dict[str, IntervalEstimate]
    confusion: dict[tuple[str, str], list[list[int]]]
    positive_rate: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content; the keys of `confusion` are `JUDGE x JUDGE`."""

        def estimates(intervals: dict[str, IntervalEstimate]) -> dict[str, list[float | None]]:
            return {name: [rounded(x) for x in (e.value, e.low, e.high)] for name, e in intervals.items()}

        return {
            "judges": self.judges,
            "pairs": self.pairs,
            "complete": self.complete,
            "labels": estimates(self.labels),
            "grades": estimates(self.grades),
            "confusion": {" x ".join(names): table for names, table in self.confusion.items()},
            "positive_rate": {judge: round(rate, 4) for judge, rate in self.positive_rate.items()},
        }


def agreement(judgements: Iterable[Judgement], *, positive: Sequence[str] = POSITIVE_GRADES) -> Agreement:
    """Return the agreement of all judges who occur.

    Args:
        judgements: Judgements of two or more judges.
        positive: Grades that count as positive.

    Raises:
        BuildError: There is only one judge, or no pair that two judges have graded.
    """
    judges, grades = by_pair(judgements)
    if len(judges) < 2:
        raise BuildError(f"Agreement needs at least two judges; got {', '.join(judges) or 'none'}.")
    letters = np.full((len(grades), len(judges)), -1)
    for item, by_judge in enumerate(grades.values()):
        for judge, grade in by_judge.items():
            letters[item, judges.index(judge)] = value(grade)
    rated = (letters >= 0).sum(1)
    if not (rated > 1).any():
        raise BuildError("No pair was graded by two judges, so there is nothing to compare.")
    good = [value(grade) for grade in positive]
    binary = np.where(letters < 0, -1, np.isin(letters, good))
    _, queries = np.unique([query for query, _ in grades], return_inverse=True)
    return Agreement(
        judges=judges,
        pairs=int((rated > 1).sum()),
        complete=int((rated == len(judges)).sum()),
        labels=_estimates(_counts(binary, 2), "nominal", queries),
        grades=_estimates(_counts(letters, len(GRADES)), "ordinal", queries),
        confusion={
            (judges[i], judges[j]): _confusion(letters[:, i], letters[:, j])
            for i, j in combinations(range(len(judges)), 2)
        },
        positive_rate={judge: float(binary[binary[:, i] >= 0, i].mean()) for i, judge in enumerate(judges)},
    )


def _counts(ratings: NDArray[np.int64], categories: int) -> NDArray[np.int64]:
    return np.stack([(ratings == category).sum(1) for category in range(categories)], axis=1)


def _confusion(first: NDArray[np.int64], second: NDArray[np.int64]) -> list[list[int]]:
    both = (first >= 0) & (second >= 0)
    table = np.zeros((len(GRADES), len(GRADES)), dtype=int)
    np.add.at(table, (len(GRADES) - 1 - first[both], len(GRADES) - 1 - second[both]), 1)
    rows: list[list[int]] = table.tolist()
    return rows


def _observed_agreements(counts: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    several = counts.sum(1) > 1
    counts, weights = counts[several], weights[:, several]
    number = counts.sum(1)
    return _means((counts * (counts - 1)).sum(1) / (number * (number - 1)), weights)


@dataclass(frozen=True)
class _ByQuery:
    """A coefficient as a function of the queries' weights, as a sample for the bootstrap.

    Coefficients depend only on how many items have which counts. There are few different rows of counts, so a
    resample is a product with `table` instead of a pass over thousands of rows.

    Attributes:
        patterns: `(patterns, categories)`, the different rows of counts.
        table: `(queries, patterns)`, number of items of each query with each pattern.
        coefficients: Function of the patterns and of `(weightings, patterns)` weights.
    """

    patterns: NDArray[np.int64]
    table: NDArray[np.float64]
    coefficients: Coefficients

    def __len__(self) -> int:
        return len(self.table)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coefficient under each weighting, as `medteb_mteb.report.intervals.Sample.statistic`."""
        return self.coefficients(self.patterns, weights @ self.table)


def _estimates(
    counts: NDArray[np.int64], level: Level, queries: NDArray[np.int64]
) -> dict[str, IntervalEstimate]:
    functions: dict[str, Coefficients] = {
        "agreement": _observed_agreements,
        "fleiss_kappa": _fleiss_kappas,
        "krippendorff_alpha": partial(_krippendorff_alphas, level=level),
        "gwet_ac1": _gwet_ac1s,
    }
    patterns, pattern_of_item = np.unique(counts, axis=0, return_inverse=True)
    table = np.zeros((int(queries.max()) + 1, len(patterns)))
    np.add.at(table, (queries, pattern_of_item.ravel()), 1)
    result = {}
    for name, function in functions.items():
        low, high = interval(_ByQuery(patterns, table, function))
        value = _of_one_weighting(function, counts, None)
        if name == "agreement" and value in (0.0, 1.0):  # a bootstrap would have width 0
            low, high = exact_interval(int(value) * len(table), len(table))
        result[name] = IntervalEstimate(value, low, high)
    return result
