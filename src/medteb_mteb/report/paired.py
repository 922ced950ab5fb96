"""Paired comparisons of any number of systems, on one task or on the average of several.

All systems see the same resamples and the same random swaps. A resampled score, and a score after swaps, is
computed once per system; the difference of two systems is then a difference of two vectors, so a hundred
systems cost little more than two. Tasks may share questions: those are drawn and swapped together, and count
once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from mar_st.evaluation.statistics import holm, p_value
from medteb_mteb.report.intervals import (
    RESAMPLES,
    SEED,
    MeanSample,
    Sample,
    quantiles,
    resample_weights,
    score_of,
    smallest_difference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

#: Probability of calling two equal systems different.
LEVEL = 0.05
#: Random swaps of a test.
SWAPS = 10_000
#: Differences per question up to this are rounding.
_TIE = 1e-9
_CHUNK = 2_000_000  # coins drawn at once: 16 MB


class Parts(NamedTuple):
    """A score as a sum over questions.

    Attributes:
        by_question: What each question adds to the score, `(questions,)` float64.
        swapped: Their sums with random signs, `(swaps,)` float64.
    """

    by_question: Array
    swapped: Array


@dataclass(frozen=True)
class Drawn:
    """A system's score, and its scores under the shared draws.

    Attributes:
        score: The score: the mean over the tasks.
        resampled: `(resamples,)` float64.
        parts: The score as a sum; None if it is not a mean over items, such as a correlation.
    """

    score: float
    resampled: Array
    parts: Parts | None


class Comparison(NamedTuple):
    """Difference of two systems on the same items.

    Attributes:
        difference: Score of the first minus score of the second.
        low: Lower end of the paired 95 % bootstrap interval.
        high: Upper end of it.
        p_value: Two-sided: a paired randomisation test for means; else from the paired bootstrap, since not
            every statistic (average precision over several similarities) stays comparable after swaps.
        detectable: Smallest true difference that this test finds four times in five (two-sided, 5 %).
        wins: Questions on which the first is better; None if the score is not a mean.
        ties: Questions on which both are equal.
        losses: Questions on which the first is worse.
    """

    difference: float
    low: float
    high: float
    p_value: float
    detectable: float
    wins: int | None
    ties: int | None
    losses: int | None


@dataclass(frozen=True)
class Compared:
    """Systems that were measured on the same questions, and their comparisons.

    Attributes:
        drawn: The systems, by name.
        pairs: Comparisons by the names of first and second; a pair whose difference is undefined in most
            resamples is missing.
        adjusted: p-values of the pairs after Holm's correction for all of them.
        groups: Number of the tie group of each system, from 1, the best; see `of`.
        questions: Number of distinct questions.
    """

    drawn: dict[str, Drawn]
    pairs: dict[tuple[str, str], Comparison]
    adjusted: dict[tuple[str, str], float]
    groups: dict[str, int]
    questions: int

    @classmethod
    def of(
        cls,
        systems: Mapping[str, Sequence[Sample]],
        groups: Sequence[NDArray[np.intp]],
        baseline: str | None = None,
    ) -> Self:
        """Compare every two systems, or all with one, and group those that the data cannot tell apart.

        The first group has the best system and all those not told from it; the next has the best of the rest
        and those not told from that one; and so on. Two systems are told apart if p < `LEVEL` after Holm's
        correction for all pairs, whatever the baseline.

        Args:
            systems: As for `draw`.
            groups: As for `draw`.
            baseline: The second of every pair; default: all pairs.

        Raises:
            ValueError: As for `draw`.
        """
        drawn = draw(systems, groups)
        pairs, adjusted = _tested(drawn, combinations(drawn, 2))
        tied = _tie_groups(drawn, adjusted)
        if baseline is not None:
            others = [name for name in drawn if name != baseline] if baseline in drawn else []
            pairs, adjusted = _tested(drawn, ((other, baseline) for other in others))
        return cls(drawn, pairs, adjusted, tied, _questions(groups))


def _tested(
    drawn: Mapping[str, Drawn], asked: Iterable[tuple[str, str]]
) -> tuple[dict[tuple[str, str], Comparison], dict[tuple[str, str], float]]:
    """Return the comparisons of some pairs, and their p-values after Holm's correction for all of them."""
    pairs = {}
    for first, second in asked:
        with suppress(ValueError):  # undefined in most resamples
            pairs[first, second] = compare(drawn[first], drawn[second])
    return pairs, holm({pair: one.p_value for pair, one in pairs.items()})


def _tie_groups(drawn: Mapping[str, Drawn], adjusted: Mapping[tuple[str, str], float]) -> dict[str, int]:
    told = {frozenset(pair) for pair, p in adjusted.items() if p < LEVEL}
    left = sorted(drawn, key=lambda name: -drawn[name].score)
    groups: dict[str, int] = {}
    while left:
        number, best = 1 + max(groups.values(), default=0), left[0]
        groups |= {name: number for name in left if frozenset((best, name)) not in told}
        left = [name for name in left if name not in groups]
    return groups


def _questions(groups: Sequence[NDArray[np.intp]]) -> int:
    return 1 + max(int(group.max(initial=-1)) for group in groups)


def draw(systems: Mapping[str, Sequence[Sample]], groups: Sequence[NDArray[np.intp]]) -> dict[str, Drawn]:
    """Draw resamples and swaps of the questions, and score every system under them.

    Args:
        systems: By name, a sample per task; the items of a task are the same, in the same order.
        groups: Per task, the number of the question of each item, from 0, `(items,)`.

    Raises:
        ValueError: A sample has another number of items than its group, or there are fewer than two
            questions.
    """
    for name, samples in systems.items():
        for sample, group in zip(samples, groups, strict=True):
            if len(sample) != len(group):
                raise ValueError(
                    f"A paired comparison needs the same items: {name} has {len(sample)} of {len(group)}. "
                    "Evaluate all systems on the same data revision."
                )
    questions = _questions(groups)
    resampled: dict[str, list[Array]] = {name: [] for name in systems}
    for weights in resample_weights(questions, RESAMPLES, SEED):
        by_task = [weights[:, group] for group in groups]
        for name, samples in systems.items():
            scores = [sample.statistic(counts) for sample, counts in zip(samples, by_task, strict=True)]
            resampled[name].append(np.mean(scores, axis=0))
    parts = _parts(systems, groups, questions)
    return {
        name: Drawn(
            float(np.mean([score_of(sample) for sample in samples])),
            np.concatenate(resampled[name]),
            parts.get(name),
        )
        for name, samples in systems.items()
    }


def _parts(
    systems: Mapping[str, Sequence[Sample]], groups: Sequence[NDArray[np.intp]], questions: int
) -> dict[str, Parts]:
    by_question = {}
    for name, samples in systems.items():
        means = [sample for sample in samples if isinstance(sample, MeanSample)]
        if len(means) == len(samples):
            added = [
                np.bincount(group, mean.values, questions) / len(mean)
                for mean, group in zip(means, groups, strict=True)
            ]
            by_question[name] = np.mean(added, axis=0)
    if not by_question:
        return {}
    values = np.stack(list(by_question.values()), axis=1)
    swapped = np.concatenate([signs @ values for signs in _signs(questions)])
    return {name: Parts(by_question[name], sums) for name, sums in zip(by_question, swapped.T, strict=True)}


def _signs(questions: int) -> Iterator[Array]:
    rng = np.random.default_rng(SEED)
    step = max(1, _CHUNK // questions)
    for start in range(0, SWAPS, step):
        yield np.where(rng.integers(0, 2, size=(min(step, SWAPS - start), questions)) == 0, -1.0, 1.0)


def compare(first: Drawn, second: Drawn) -> Comparison:
    """Compare two systems of one `draw`.

    Raises:
        ValueError: The difference is undefined in most resamples.
    """
    differences = first.resampled - second.resampled
    low, high = quantiles(differences)
    difference = first.score - second.score
    defined = differences[~np.isnan(differences)]
    deviation = float(np.std(defined, ddof=1))
    detectable = smallest_difference(1, deviation)
    if first.parts is None or second.parts is None:
        p = _bootstrap_p(difference, defined, deviation)
        return Comparison(difference, low, high, p, detectable, None, None, None)
    gaps = first.parts.by_question - second.parts.by_question
    wins, losses = int((gaps > _TIE).sum()), int((gaps < -_TIE).sum())
    p = _randomisation_p(difference, first.parts.swapped - second.parts.swapped, gaps)
    return Comparison(difference, low, high, p, detectable, wins, len(gaps) - wins - losses, losses)


def _randomisation_p(difference: float, swapped: Array, gaps: Array) -> float:
    """Return the share of swaps with as large a difference, the observed one among them.

    If no swap has one, the number of swaps limits the share. Hoeffding's bound for a sum with random signs
    (1963, theorem 2), `2 exp(-difference² / (2 sum gaps²))`, may be lower. It is never below the exact
    p-value.
    """
    p = p_value(difference, swapped)
    bound = 2 * float(np.exp(-(difference**2) / (2 * float(gaps @ gaps)))) if gaps.any() else 1.0
    return min(p, bound) if p * (len(swapped) + 1) < 2 else p


def _bootstrap_p(difference: float, drawn: Array, deviation: float) -> float:
    """Return twice the share of resamples beyond zero; of the normal distribution if none is."""
    from scipy.stats import norm  # lazy: scipy

    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
    return p if tail or not deviation else min(p, 2 * float(norm.sf(abs(difference) / deviation)))
