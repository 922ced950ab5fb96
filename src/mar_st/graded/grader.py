"""Cross-encoders that grade pairs: thresholds turn their scores into labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mar_st.errors import MarError
from mar_st.files import read_json
from mar_st.model.digest import model_digest
from mar_st.model.reranker import Reranker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["THRESHOLDS_FILE", "Grader", "Thresholds", "fit_thresholds", "weighted_kappa"]

#: File of the thresholds, beside the weights.
THRESHOLDS_FILE = "thresholds.json"

#: Candidates for a threshold, quantiles of the scores, and rounds over all thresholds.
CANDIDATES, ROUNDS = 200, 5


@dataclass(frozen=True)
class Thresholds:
    """Bounds between labels.

    Attributes:
        labels: The labels that scores are turned into, ascending.
        bounds: Lowest score of each label after the first, ascending; one fewer than `labels`.

    Raises:
        MarError: Labels or bounds are not ascending, not finite, or of the wrong number.
    """

    labels: tuple[int, ...]
    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.labels, self.labels[1:], strict=False))
        sorted_bounds = all(a <= b for a, b in zip(self.bounds, self.bounds[1:], strict=False))
        fits = len(self.labels) == len(self.bounds) + 1 >= 2
        if not (fits and ascending and sorted_bounds and np.isfinite(self.bounds).all()):
            raise MarError(f"Thresholds are ascending; got {self.labels} and {self.bounds}.")

    def label(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Return the labels of scores.

        Args:
            scores: Shape (pairs,).

        Returns:
            Shape (pairs,), int64. A score equal to a bound gets the higher label.

        Raises:
            MarError: A score is NaN.
        """
        values = np.asarray(scores)
        _refuse_nan(values)
        return np.asarray(self.labels)[np.searchsorted(self.bounds, values, side="right")]


def weighted_kappa(one: ArrayLike, other: ArrayLike, levels: int) -> float:
    """Cohen's kappa of two labellings with quadratic weights (Cohen, 1968).

    Args:
        one: Labels from 0 to `levels` - 1, shape (pairs,).
        other: Labels of the same pairs.
        levels: Number of labels.

    `fit_thresholds` calls it thousands of times: for 2,000 pairs it takes 18 us, scikit-learn's
    `cohen_kappa_score` 1.25 ms (2 processors of an Intel Xeon).

    Returns:
        1 for perfect agreement, 0 for chance agreement; 1 if both give the same single label to everything.
    """
    a, b = np.asarray(one), np.asarray(other)
    table = np.bincount(a * levels + b, minlength=levels * levels).reshape(levels, levels).astype(float)
    grid = np.arange(levels)
    weights = (grid[:, None] - grid[None, :]) ** 2
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    by_chance = (weights * expected).sum()
    return 1.0 if not by_chance else float(1 - (weights * table).sum() / by_chance)


def fit_thresholds(scores: ArrayLike, labels: Sequence[int]) -> Thresholds:
    """Find the thresholds whose labels have the highest weighted kappa with given labels.

    Starts from the quantiles that give each label as often as it occurs, then moves one threshold at a time.

    Args:
        scores: Shape (pairs,).
        labels: Labels of the same pairs.

    Raises:
        MarError: There are fewer than two labels, or a score is NaN.
    """
    x, given = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    _refuse_nan(x)
    known = np.unique(given)
    if len(known) < 2:
        raise MarError(f"Thresholds need pairs of two labels at least; all are {known.tolist()}.")
    truth = np.searchsorted(known, given)
    shares = np.cumsum(np.bincount(truth))[:-1] / len(truth)
    candidates = np.unique(np.quantile(x, [*np.linspace(0, 1, CANDIDATES), *shares]))
    bounds = np.quantile(x, shares)

    def quality(tried: NDArray[np.float64]) -> float:
        return weighted_kappa(np.searchsorted(tried, x, side="right"), truth, len(known))

    best = quality(bounds)
    for _ in range(ROUNDS):
        before = best
        for place in range(len(bounds)):
            low = bounds[place - 1] if place else -np.inf
            high = bounds[place + 1] if place + 1 < len(bounds) else np.inf
            for value in candidates[(candidates >= low) & (candidates <= high)]:
                tried = bounds.copy()
                tried[place] = value
                if (kappa := quality(tried)) > best:
                    best, bounds = kappa, tried
        if best == before:
            break
    return Thresholds(tuple(map(int, known)), tuple(map(float, bounds)))


def _refuse_nan(scores: NDArray[np.floating]) -> None:
    """Refuse scores that are not numbers: they would all get the highest label."""
    if np.isnan(scores).any():
        raise MarError(
            f"The score of pair {int(np.flatnonzero(np.isnan(scores))[0])} is NaN. Check the weights of the "
            "cross-encoder, or train it again with a lower learning rate."
        )


class Grader:
    """Labels pairs; the weights are loaded on first use.

    Args:
        folder: A folder that `mar cross-encoder` wrote.
        batch_size: Pairs per forward pass.

    Raises:
        MarError: The folder does not exist, or it has no valid thresholds.
    """

    def __init__(self, folder: str | Path, *, batch_size: int = 32) -> None:
        self.folder = Path(folder)
        file = self.folder / THRESHOLDS_FILE
        try:
            content = read_json(file)
            self.thresholds = Thresholds(tuple(content["labels"]), tuple(content["bounds"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise MarError(f"{file} is not what 'mar cross-encoder' writes ({error!r}).") from error
        self._reranker = Reranker(str(self.folder), batch_size=batch_size)

    def identity(self) -> str:
        """Return the digest of all that the labels depend on: weights, settings, tokenizer and thresholds."""
        return model_digest(self.folder)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the scores of (query, document) pairs, shape (pairs,), float32."""
        return self._reranker.score(pairs)

    def label(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        """Return the labels of (query, document) pairs, shape (pairs,), int64."""
        return self.thresholds.label(self.scores(pairs))
