"""Differences between two groups of queries, as they are and matched for difficulty, as samples to resample.

Groups of different months hold different queries, so their scores cannot be paired. A regression of the
scores on the group and on measures of difficulty compares queries of equal difficulty instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class GroupDifference:
    """Mean of a first group minus that of the others, adjusted for covariates (analysis of covariance).

    The statistic is the coefficient of the group in the least-squares regression of the values on group and
    covariates, a matching estimator that weights by variance (Angrist & Pischke 2009, "Mostly Harmless
    Econometrics", section 3.3.1). Without covariates it is the difference of the means. Resampling items
    assumes no constant variance (Freedman 1981, "Bootstrapping regression models", Annals of Statistics
    9(6)).

    Attributes:
        values: One value per item, `(items,)` float64.
        first: True for items of the first group, `(items,)` bool.
        covariates: `(items, covariates)` float64; there may be none.
    """

    values: NDArray[np.float64]
    first: NDArray[np.bool_]
    covariates: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def statistic(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the difference under each weighting; NaN where a group has no weight.

        Args:
            weights: Shape (resamples, items), float64: how often each item counts.
        """
        ones = np.ones((len(self), 1))
        design = np.concatenate([ones, self.first[:, None], self.covariates], axis=1)
        columns = design.shape[1]
        products = (design[:, :, None] * design[:, None, :]).reshape(len(self), columns * columns)
        squares = (weights @ products).reshape(-1, columns, columns)
        moments = weights @ (design * self.values[:, None])
        inverse = np.linalg.pinv(squares, rcond=1e-10, hermitian=True)
        coefficients = np.einsum("rp,rp->r", inverse[:, 1], moments)
        weight = weights @ self.first
        lacking = (weight == 0) | (weight == weights.sum(axis=1))
        return np.where(lacking, np.nan, coefficients)


def difficulty(measures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return covariates of measures such as lengths and counts: log(1 + x), standardised, and its square.

    Args:
        measures: `(items, measures)` float64, not negative.

    Returns:
        `(items, 2 * measures)` float64. A constant measure gives zeros, which change nothing.
    """
    logs = np.log1p(measures)
    spread = logs.std(axis=0)
    scaled = (logs - logs.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.concatenate([scaled, np.where(spread > 0, scaled**2 - 1, 0)], axis=1)
