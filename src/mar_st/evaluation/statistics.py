"""Uncertainty of scores: bootstrap intervals, paired randomisation tests, agreement of two rankings.

Scores of a model come as an array `(seeds, items)`: one value per query, or one predicted similarity per
pair.
`Scores.kind` names the statistic: the mean, or the correlation with the gold values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import t as student_t

from mar_st.evaluation.resampling import resampled, swapped_means

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Kind = Literal["mean", "pearson", "spearman"]

#: Permutations handled at a time; bounds the memory at `_CHUNK * items` values.
_CHUNK = 500


@dataclass(frozen=True)
class Scores:
    """Scores of one row of a study on one task.

    Attributes:
        values: `(seeds, items)` float64.
        gold: `(items,)` float64 for correlations, else `None`.
        kind: How the score is computed from the values.
    """

    values: Array
    gold: Array | None = None
    kind: Kind = "mean"

    def per_seed(self) -> Array:
        """Return the score of every seed, `(seeds,)`."""
        if self.kind == "mean":
            return np.asarray(self.values.mean(axis=1))
        assert self.gold is not None  # noqa: S101 -- correlations come with gold values
        return np.array([_correlation(row[None], self.gold[None], self.kind)[0] for row in self.values])


def bootstrap(scores: Scores, *, resamples: int, seed: Sequence[int]) -> Array:
    """Return the scores of resampled items, averaged over the seeds, `(resamples,)`.

    Items are drawn with replacement and are the same for all seeds, so for a mean this is the bootstrap of
    the seed-averaged scores per query.

    Args:
        scores: Values of one row on one task.
        resamples: Number of resamples.
        seed: Seed of the draws.
    """
    items = scores.values.shape[1]
    averaged = scores.values.mean(axis=0)
    chunks = []
    for index in resampled(items, resamples, list(seed)):
        if scores.kind == "mean":
            chunks.append(averaged[index].mean(axis=1))
            continue
        assert scores.gold is not None  # noqa: S101 -- correlations come with gold values
        if scores.kind == "spearman":
            chunks.append(_resampled_spearman(scores.values, scores.gold, index))
            continue
        gold = scores.gold[index]
        chunks.append(np.mean([_correlation(row[index], gold, scores.kind) for row in scores.values], axis=0))
    return np.concatenate(chunks)


def randomised(first: Scores, second: Scores, *, permutations: int, seed: Sequence[int]) -> Array:
    """Return the differences of two models under the null hypothesis that they are equal, `(permutations,)`.

    For each item a fair coin decides whether the two models swap their values (in all seeds together, since
    the seeds share the items). For correlations the predictions are made comparable first: standardised
    for Pearson, ranked for Spearman.

    Args:
        first: Values of one model.
        second: Values of another model on the same items.
        permutations: Number of draws.
        seed: Seed of the draws.

    Raises:
        ValueError: The numbers of items differ.
    """
    if first.values.shape[1] != second.values.shape[1]:
        raise ValueError(
            f"The models were scored on {first.values.shape[1]} and {second.values.shape[1]} items; a paired "
            "test needs the same ones."
        )
    first, second = _as_many_seeds(first, second)
    items = first.values.shape[1]
    swaps = (rng.random((size, items)) < 0.5 for size, rng in _chunks(permutations, seed))
    if first.kind == "mean":
        return swapped_means(first.values.mean(axis=0) - second.values.mean(axis=0), swaps)
    return np.concatenate([_swapped_correlations(first, second, swap) for swap in swaps])


def difference(first: Scores, second: Scores) -> float:
    """Return the observed test statistic: mean over the seeds, first minus second."""
    return float(first.per_seed().mean() - second.per_seed().mean())


@dataclass(frozen=True)
class Seeds:
    """Average scores of one row over its seeds, and the spread of the seeds.

    Attributes:
        scores: `(seeds,)` float64.
        variance: Variance of one seed; 0 for untrained rows.
        freedom: Degrees of freedom of the variance; 0 for untrained rows.
    """

    scores: Array
    variance: float
    freedom: int


def seed_variances(per_seed: Mapping[str, Array], trained: Container[str]) -> dict[str, Seeds]:
    """Return the variance between the seeds of every row.

    A trained row with one seed gets the pooled variance of the rows with several, if there are any.

    Args:
        per_seed: Average scores by row, `(seeds,)` each.
        trained: Rows that depend on a seed.
    """
    several = [scores for name, scores in per_seed.items() if name in trained and len(scores) > 1]
    freedom = sum(len(scores) - 1 for scores in several)
    pooled = sum(float(scores.var(ddof=1)) * (len(scores) - 1) for scores in several) / max(freedom, 1)
    variances = {}
    for name, scores in per_seed.items():
        if name not in trained:
            variances[name] = Seeds(scores, 0.0, 0)
        elif len(scores) > 1:
            variances[name] = Seeds(scores, float(scores.var(ddof=1)), len(scores) - 1)
        else:
            variances[name] = Seeds(scores, pooled, freedom)
    return variances


@dataclass(frozen=True)
class Mixed:
    """A difference of two rows with seeds and items both drawn at random.

    Attributes:
        difference: First minus second.
        low: Lower end of the 95 % interval.
        high: Upper end.
        p: Two-sided p-value.
    """

    difference: float
    low: float
    high: float
    p: float


def mixed(first: Seeds, second: Seeds, drawn: Array) -> Mixed:
    """Compare two rows, with training seeds and items both as random samples (Welch's t-test).

    The variance of the difference is the sum of three parts: that of the items, from a paired bootstrap of
    the seed-averaged scores; and that of the seeds of each row, divided by their number. Its degrees of
    freedom are those of Welch and Satterthwaite; the many items count as infinitely many.

    Args:
        first: Seeds of one row.
        second: Seeds of the other.
        drawn: Differences of the seed-averaged scores on resampled items, `(resamples,)`.
    """
    parts = [(seeds.variance / len(seeds.scores), seeds.freedom) for seeds in (first, second)]
    between = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    variance = float(drawn.var(ddof=1)) + sum(variance for variance, _ in parts)
    gap = float(first.scores.mean() - second.scores.mean())
    if variance == 0:
        return Mixed(gap, gap, gap, 1.0 if gap == 0 else 0.0)
    law = student_t(variance**2 / between if between else np.inf)
    error = math.sqrt(variance)
    half = float(law.ppf(0.975)) * error
    return Mixed(gap, gap - half, gap + half, 2 * float(law.sf(abs(gap) / error)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values of several comparisons with one model, adjusted for their number (Holm 1979)."""
    adjusted, highest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def rank_agreement(
    ours: Mapping[str, float], theirs: Mapping[str, float]
) -> tuple[float | None, list[tuple[str, str]]]:
    """Return the agreement of two orderings of the same rows.

    Args:
        ours: Score by row.
        theirs: Score by row, on any scale; rows that only one side has are left out.

    Returns:
        Kendall's tau-b (`None` if one side ties everywhere), and the pairs in opposite order, each with
        the row that we score higher first.
    """
    names = [name for name in ours if name in theirs]
    agree, opposite, tied = 0, [], [0, 0]
    for index, a in enumerate(names):
        for b in names[index + 1 :]:
            mine, other = np.sign(ours[a] - ours[b]), np.sign(theirs[a] - theirs[b])
            tied[0] += mine == 0
            tied[1] += other == 0
            agree += mine * other > 0
            if mine * other < 0:
                opposite.append((a, b) if mine > 0 else (b, a))
    pairs = len(names) * (len(names) - 1) // 2
    scale = float(np.sqrt((pairs - tied[0]) * (pairs - tied[1])))
    return ((int(agree) - len(opposite)) / scale if scale else None), opposite


def _chunks(total: int, seed: Sequence[int]) -> Iterator[tuple[int, np.random.Generator]]:
    rng = np.random.default_rng(list(seed))
    for start in range(0, total, _CHUNK):
        yield min(_CHUNK, total - start), rng


def _swapped_correlations(first: Scores, second: Scores, swap: NDArray[np.bool_]) -> Array:
    """Return the difference of two correlations for each row of swaps `(draws, items)`."""
    assert first.gold is not None  # noqa: S101 -- correlations come with gold values
    a, b = (_comparable(scores) for scores in (first, second))
    gold = np.broadcast_to(first.gold, swap.shape)
    total = np.zeros(len(swap))
    for one, other in zip(a, b, strict=True):
        total += _correlation(np.where(swap, other, one), gold, first.kind)
        total -= _correlation(np.where(swap, one, other), gold, first.kind)
    return total / len(a)


def _as_many_seeds(first: Scores, second: Scores) -> tuple[Scores, Scores]:
    """Return the same scores with every seed repeated until both have as many; means stay the same."""
    number = math.lcm(len(first.values), len(second.values))

    def repeated(scores: Scores) -> Scores:
        values = np.repeat(scores.values, number // len(scores.values), axis=0)
        return Scores(values, scores.gold, scores.kind)

    return repeated(first), repeated(second)


def _comparable(scores: Scores) -> Array:
    if scores.kind == "spearman":
        return _ranks(scores.values)
    centred = scores.values - scores.values.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-12))


def _correlation(values: Array, gold: Array, kind: Kind) -> Array:
    """Row-wise correlation of two `(rows, items)` arrays; 0 where one of them is constant."""
    if kind == "spearman":
        values, gold = _ranks(values), _ranks(gold)
    values = values - values.mean(axis=1, keepdims=True)
    gold = gold - gold.mean(axis=1, keepdims=True)
    scale = np.sqrt((values**2).sum(axis=1) * (gold**2).sum(axis=1))
    correlations: Array = (values * gold).sum(axis=1) / np.where(scale > 0, scale, np.inf)
    return correlations


def _resampled_spearman(values: Array, gold: Array, index: NDArray[np.intp]) -> Array:
    """Return Spearman correlations with the gold values for resamples of the items, averaged over the seeds.

    A resample is given by how often it has each item, so its ranks follow from one order of all items.
    Sorting every resample of 1,157 items takes three times as long.

    Args:
        values: `(seeds, items)`.
        gold: `(items,)`.
        index: Items of each resample, `(draws, items)`.

    Returns:
        `(draws,)`; 0 where the gold values or the values of a resample are all equal.
    """
    draws, items = index.shape
    cells = index + items * np.arange(draws)[:, None]
    counts = np.bincount(cells.ravel(), minlength=draws * items).reshape(draws, items)
    mean = (items + 1) / 2
    gold_ranks = _weighted_ranks(gold, counts) - mean
    weighted_gold = counts * gold_ranks
    gold_scale = (weighted_gold * gold_ranks).sum(axis=1)
    total = np.zeros(draws)
    for row in values:
        ranks = _weighted_ranks(row, counts) - mean
        scale = np.sqrt(gold_scale * (counts * ranks**2).sum(axis=1))
        total += (weighted_gold * ranks).sum(axis=1) / np.where(scale > 0, scale, np.inf)
    return total / len(values)


def _weighted_ranks(values: Array, counts: NDArray[np.intp]) -> Array:
    """Return the rank of every item, `(draws, items)`, if each occurs as often as `counts` says.

    Equal values share the mean of their ranks. The rank of an item that does not occur has no meaning.

    Args:
        values: `(items,)`.
        counts: `(draws, items)`.
    """
    _, starts, group = np.unique(np.sort(values), return_index=True, return_inverse=True)
    order = np.argsort(values, kind="stable")
    sizes = np.add.reduceat(counts[:, order], starts, axis=1)
    ranks = np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2
    groups = np.empty_like(group)
    groups[order] = group
    weighted: Array = ranks[:, groups]
    return weighted


def _ranks(values: Array) -> Array:
    """Row-wise ranks from 1; equal values share the mean of theirs."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    items = values.shape[1]
    position = np.broadcast_to(np.arange(items), values.shape)
    new = np.ones(values.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(new, position, 0), axis=1)
    last_start = np.ones(values.shape, bool)
    last_start[:, :-1] = new[:, 1:]
    ends = np.where(last_start, position, items)
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ranks
