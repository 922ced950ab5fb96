"""Agreement of judges: Fleiss' and Cohen's kappa, Krippendorff's alpha, Gwet's AC1.

All compare the observed agreement with that expected by chance, `(a - e) / (1 - e)`, and differ in how they
estimate the chance. If nearly all pairs have one label, kappa and alpha are low even though the judges agree;
AC1 is not. Intervals are 95 % percentile bootstrap intervals over queries: every coefficient is a function of
the items' weights, `(weightings, items)`. That of an agreement of 0 or 1 is exact (Clopper-Pearson), with as
many trials as queries.

Sources: J. Cohen, Educational and Psychological Measurement 20 (1960); J. L. Fleiss, Psychological Bulletin
76 (1971); K. Krippendorff, Content Analysis (2018), chapter 12; K. L. Gwet, British Journal of Mathematical
and Statistical Psychology 61 (2008), equations 6 to 8.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from mar_st.errors import MarError
from medteb_mteb.curation.labels.grades import GRADES, POSITIVE_GRADES, by_pair, value
from medteb_mteb.report.intervals import IntervalEstimate, estimated, exact_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from medteb_mteb.curation.labels.grades import Judgement

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]
Array: TypeAlias = "NDArray[np.float64]"
Coefficient: TypeAlias = "Callable[[NDArray[np.int64], Array], Array]"


def fleiss_kappa(counts: NDArray[np.int64], weights: Array | None = None) -> float:
    """Return Fleiss' kappa of `(items, categories)` counts of ratings; NaN if all are in one category.

    Items with fewer ratings than the item with most are left out. `weights`, `(items,)`, default 1.
    """
    return _single(_fleiss, counts, weights)


def gwet_ac1(counts: NDArray[np.int64], weights: Array | None = None) -> float:
    """Return Gwet's AC1 of `(items, categories)` counts of ratings, whose number may differ by item."""
    return _single(_gwet, counts, weights)


def krippendorff_alpha(
    counts: NDArray[np.int64], level: Level = "nominal", weights: Array | None = None
) -> float:
    """Return Krippendorff's alpha of `(items, categories)` counts of ratings; NaN if all are in one category.

    Args:
        counts: Number of ratings of each item in each category, categories in order; items with less than
            two ratings do not count.
        level: `nominal`: categories are equal or not. `ordinal`: distance by the ratings between two
            categories. `interval`: by their positions.
        weights: Weight of each item, `(items,)`; default 1.
    """
    return _single(partial(_krippendorff, level=level), counts, weights)


def of_two_raters(cells: Array) -> tuple[Array, Array]:
    """Return Cohen's kappa and Gwet's AC1 of two raters who say yes or no; NaN where they are undefined.

    Args:
        cells: Number of items of which both say no, only the second says yes, only the first, and both:
            `(weightings, 4)`.
    """
    total = cells.sum(1)
    first, second = _ratio(cells[:, 2] + cells[:, 3], total), _ratio(cells[:, 1] + cells[:, 3], total)
    by_chance = first * second + (1 - first) * (1 - second)
    kappa = _beyond_chance(_ratio(cells[:, 0] + cells[:, 3], total), by_chance)
    return kappa, _gwet(np.array([[2, 0], [1, 1], [1, 1], [0, 2]]), cells)


def _single(coefficient: Coefficient, counts: NDArray[np.int64], weights: Array | None) -> float:
    one = np.ones(len(counts)) if weights is None else np.asarray(weights, dtype=float)
    return float(coefficient(counts, one[None])[0])


def _fleiss(counts: NDArray[np.int64], weights: Array) -> Array:
    number = counts.sum(1)
    most = int(number.max(initial=0))
    if most < 2:
        return np.full(len(weights), np.nan)
    counts, weights = counts[number == most], weights[:, number == most]
    observed = _ratio(weights @ (((counts**2).sum(1) - most) / (most * (most - 1))), weights.sum(1))
    shares = _ratio(weights @ counts, weights.sum(1, keepdims=True) * most)
    return _beyond_chance(observed, (shares**2).sum(1))


def _gwet(counts: NDArray[np.int64], weights: Array) -> Array:
    observed = _observed(counts, weights)
    rated = counts.sum(1) > 0
    counts, weights = counts[rated], weights[:, rated]
    shares = _ratio(weights @ (counts / counts.sum(1, keepdims=True)), weights.sum(1, keepdims=True))
    return _beyond_chance(observed, (shares * (1 - shares)).sum(1) / (counts.shape[1] - 1))


def _krippendorff(counts: NDArray[np.int64], weights: Array, level: Level) -> Array:
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


def _distance(totals: Array, level: Level) -> Array:
    """Return the distance of every two categories, `(1 or weightings, categories, categories)`."""
    positions = np.arange(totals.shape[1])[None].astype(float)
    if level == "nominal":
        return np.asarray(positions[:, :, None] != positions[:, None, :], dtype=float)
    if level == "ordinal":  # the middle of a category on the line of all ratings
        positions = totals.cumsum(1) - totals / 2
    return np.asarray((positions[:, :, None] - positions[:, None, :]) ** 2)


def _observed(counts: NDArray[np.int64], weights: Array) -> Array:
    """Return the share of equal ratings among two judges."""
    several = counts.sum(1) > 1
    counts, weights = counts[several], weights[:, several]
    number = counts.sum(1)
    return _ratio(weights @ ((counts * (counts - 1)).sum(1) / (number * (number - 1))), weights.sum(1))


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient; NaN where the denominator is 0."""
    quotient = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator != 0)
    return quotient


def _beyond_chance(observed: Array, expected: Array) -> Array:
    coefficients = np.full(len(observed), np.nan)
    np.divide(observed - expected, 1 - expected, out=coefficients, where=expected < 1)
    return coefficients


@dataclass(frozen=True)
class Agreement:
    """Agreement of judges on a set of pairs.

    Attributes:
        judges: Names of the judges, sorted.
        pairs: Number of pairs that two or more judges have graded.
        labels: Coefficients of positive against negative: `agreement` (share of equal ratings among two
            judges), `fleiss_kappa`, `krippendorff_alpha`, `gwet_ac1`.
        grades: The same for the letters; alpha treats them as ordered.
        positive_rate: Share of positives among the grades of each judge.
    """

    judges: list[str]
    pairs: int
    labels: dict[str, IntervalEstimate]
    grades: dict[str, IntervalEstimate]
    positive_rate: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content, rounded."""
        content = asdict(self)
        for kind in ("labels", "grades"):
            content[kind] = {name: one.rounded() for name, one in getattr(self, kind).items()}
        return content


def agreement(judgements: Iterable[Judgement], *, positive: Sequence[str] = POSITIVE_GRADES) -> Agreement:
    """Return the agreement of all judges who occur.

    Args:
        judgements: Judgements of two or more judges.
        positive: Grades that count as positive.

    Raises:
        MarError: There is only one judge, or no pair that two judges have graded.
    """
    judges, grades = by_pair(one for one in judgements if one.grade is not None)
    letters = np.full((len(grades), len(judges)), -1)
    for item, by_judge in enumerate(grades.values()):
        for judge, grade in by_judge.items():
            letters[item, judges.index(judge)] = value(grade)
    rated = (letters >= 0).sum(1)
    if not (rated > 1).any():
        raise MarError(
            f"Agreement needs pairs that two judges have graded; got {', '.join(judges) or 'none'}."
        )
    binary = np.where(letters < 0, -1, np.isin(letters, [value(grade) for grade in positive]))
    _, queries = np.unique([query for query, _ in grades], return_inverse=True)
    return Agreement(
        judges=judges,
        pairs=int((rated > 1).sum()),
        labels=_estimates(_counts(binary, 2), "nominal", queries),
        grades=_estimates(_counts(letters, len(GRADES)), "ordinal", queries),
        positive_rate={judge: float(binary[binary[:, i] >= 0, i].mean()) for i, judge in enumerate(judges)},
    )


def _counts(ratings: NDArray[np.int64], categories: int) -> NDArray[np.int64]:
    return np.stack([(ratings == category).sum(1) for category in range(categories)], axis=1)


@dataclass(frozen=True)
class _ByQuery:
    """A coefficient as a function of the queries' weights, as a sample for the bootstrap.

    Few items have different counts, so a resample is a product with `table`, the `(queries, patterns)`
    numbers of items with each of the `(patterns, ...)` counts, instead of a pass over thousands of rows.
    """

    patterns: NDArray[np.int64]
    table: Array
    coefficient: Coefficient

    def __len__(self) -> int:
        return len(self.table)

    def statistic(self, weights: Array) -> Array:
        """Return the coefficient under each weighting of the queries."""
        return self.coefficient(self.patterns, weights @ self.table)


def _by_query(rows: NDArray[np.int64], queries: NDArray[np.int64], coefficient: Coefficient) -> _ByQuery:
    patterns, pattern_of_row = np.unique(rows, axis=0, return_inverse=True)
    table = np.zeros((int(queries.max(initial=-1)) + 1, len(patterns)))
    np.add.at(table, (queries, pattern_of_row.ravel()), 1)
    return _ByQuery(patterns, table, coefficient)


def _estimates(
    counts: NDArray[np.int64], level: Level, queries: NDArray[np.int64]
) -> dict[str, IntervalEstimate]:
    coefficients: dict[str, Coefficient] = {
        "agreement": _observed,
        "fleiss_kappa": _fleiss,
        "krippendorff_alpha": partial(_krippendorff, level=level),
        "gwet_ac1": _gwet,
    }
    result = {}
    for name, coefficient in coefficients.items():
        sample = _by_query(counts, queries, coefficient)
        result[name] = estimated(sample)
        number = result[name].value
        if name == "agreement" and number in (0.0, 1.0):  # a bootstrap would have width 0
            exact = exact_interval(int(number) * len(sample), len(sample))
            result[name] = IntervalEstimate(number, *exact)
    return result
