"""Agreement of graders with people, people among each other, and means calibrated by a labelled share.

Intervals are nested bootstrap intervals: each resample draws questions and then raters, both with
replacement, so that they cover the choice of both. A majority of resampled raters is noisier than that of
the raters themselves, which lowers the agreement with it; the interval is therefore moved by the difference
of the resamples' mean and the estimate.

The calibrated mean of all verdicts is the mean of the grader plus the mean of (person - grader) over the
labelled share: the difference estimator of survey sampling (Saerndal, Swensson, Wretman, Model Assisted
Survey Sampling, 1992, 6.3), also called prediction-powered inference (Angelopoulos et al., Science 382,
2023). It is right on average whatever the grader is, if the labelled questions are drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from medteb_mteb.curation.labels.agreement import of_two_raters
from medteb_mteb.report.intervals import RESAMPLES, SEED, IntervalEstimate, quantiles, resample_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"
#: A number as a function of the raters, by column, and weights of the questions, `(weightings, questions)`.
Statistic: TypeAlias = "Callable[[tuple[int, ...], Array], Array]"

#: No label, or no verdict.
NONE = -1


@dataclass(frozen=True)
class Labelled:
    """Labels of people on items: is the criterion met by the answer?

    Attributes:
        labels: 1 for met, 0 for not met, -1 for no label; `(items, raters)`.
        questions: Number of the question of each item, `(items,)`.
    """

    labels: NDArray[np.int64]
    questions: NDArray[np.int64]

    def __getitem__(self, items: NDArray[np.bool_]) -> Labelled:
        """Return some of the items, and only their questions."""
        _, questions = np.unique(self.questions[items], return_inverse=True)
        return Labelled(self.labels[items], questions)

    @cached_property
    def number(self) -> int:
        """Return the number of questions."""
        return int(self.questions.max(initial=-1)) + 1

    def majority(self, raters: Sequence[int]) -> NDArray[np.int64]:
        """Return the label of most raters by item, -1 for a tie or without a label."""
        given = self.labels[:, list(raters)]
        ahead = (given == 1).sum(1) - (given == 0).sum(1)
        return np.where(ahead > 0, 1, np.where(ahead < 0, 0, NONE))

    def by_question(self, values: Array) -> Array:
        """Return the sums over the items of each question, `(questions, ...)`."""
        sums = np.zeros((self.number, *values.shape[1:]))
        np.add.at(sums, self.questions, values)
        return sums

    def cells(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Array:
        """Return the cells of `of_two_raters` by question, `(questions, 4)`."""
        both = (first >= 0) & (second >= 0)
        return self.by_question(np.eye(4)[np.where(both, 2 * first + second, 0)] * both[:, None])


def with_people(data: Labelled, verdicts: NDArray[np.int64]) -> dict[str, IntervalEstimate]:
    """Return the agreement of a grader with people: `kappa` and `ac1` with their majority, `single`.

    `single` is the mean of Cohen's kappa with each rater, which compares with that of `among_people`.

    Args:
        data: Labels of people.
        verdicts: 1, 0 or -1 by item.
    """

    def majority(raters: tuple[int, ...], weights: Array) -> tuple[Array, Array]:
        return of_two_raters(weights @ data.cells(data.majority(raters), verdicts))

    def single(raters: tuple[int, ...], weights: Array) -> Array:
        return _mean_kappa(data, [(data.labels[:, rater], verdicts) for rater in raters], weights)

    return {
        "kappa": nested(lambda *draw: majority(*draw)[0], data),
        "ac1": nested(lambda *draw: majority(*draw)[1], data),
        "single": nested(single, data),
    }


def among_people(data: Labelled) -> IntervalEstimate:
    """Return the mean of Cohen's kappa over all pairs of raters."""

    def pairs(raters: tuple[int, ...], weights: Array) -> Array:
        two = [(one, other) for one, other in combinations(raters, 2) if one != other]
        columns = [(data.labels[:, one], data.labels[:, other]) for one, other in two]
        return _mean_kappa(data, columns, weights)

    return nested(pairs, data)


def calibrated_mean(data: Labelled, verdicts: NDArray[np.int64]) -> IntervalEstimate:
    """Return the share of met criteria, by the grader on all items and corrected by people on those labelled.

    Args:
        data: Labels of people; items without any are the unlabelled share.
        verdicts: 1, 0 or -1 by item; items without a verdict are left out.
    """

    def mean(raters: tuple[int, ...], weights: Array) -> Array:
        person, judged = data.majority(raters), verdicts >= 0
        both = judged & (person >= 0)
        columns = [judged, judged * verdicts, both, both * (person - verdicts)]
        sums = weights @ data.by_question(np.stack(columns, axis=1).astype(float))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums[:, 1] / sums[:, 0] + sums[:, 3] / sums[:, 2])

    return nested(mean, data)


def _mean_kappa(
    data: Labelled, pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], weights: Array
) -> Array:
    kappas = [of_two_raters(weights @ data.cells(*pair))[0] for pair in pairs]
    return np.asarray(np.mean(kappas, axis=0)) if kappas else np.full(len(weights), np.nan)


def nested(statistic: Statistic, data: Labelled) -> IntervalEstimate:
    """Return a statistic with its 95 % nested bootstrap interval over questions and raters.

    Args:
        statistic: The statistic.
        data: Labels of people.

    Returns:
        The estimate and its interval; NaN where it is undefined, or for fewer than two questions.
    """
    raters = data.labels.shape[1]
    value = float(statistic(tuple(range(raters)), np.ones((1, data.number)))[0])
    unknown = IntervalEstimate(value, float("nan"), float("nan"))
    if data.number < 2 or np.isnan(value):
        return unknown
    random = np.random.default_rng(SEED)
    values = []
    for weights in resample_weights(data.number, RESAMPLES, SEED):
        drawn = np.sort(random.integers(raters, size=(len(weights), raters)), axis=1)
        panels, panel = np.unique(drawn, axis=0, return_inverse=True)
        found = np.empty(len(weights))
        for number, one in enumerate(panels):  # few raters have few panels
            found[panel.ravel() == number] = statistic(tuple(map(int, one)), weights[panel.ravel() == number])
        values.append(found)
    resampled = np.concatenate(values)
    try:
        low, high = quantiles(resampled)
    except ValueError:
        return unknown
    shift = value - float(np.nanmean(resampled))
    return IntervalEstimate(value, low + shift, min(1.0, high + shift))
