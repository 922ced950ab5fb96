"""Settings of synonym STS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.texts.split import QUERY_SIMILARITY

__all__ = ["StsSettings"]


@dataclass(frozen=True)
class StsSettings:
    """Settings of synonym STS.

    Attributes:
        name: Name of the edition.
        licence: Licence of the data, as in its manifest.
        version: Version of the edition.
        test: Number of test queries, or their share if below 1; the others are for training.
        probabilities: Probabilities of `positive`, `negative-1` and `negative-2` for a test query. The
            paper does not state them; default a third each.
        tolerance: Share of the query's length by which that of the positive may differ (published: 0.3).
        per_entry: Maximum number of queries of one dictionary entry that are rewritten; `None`: all.
        limit: Maximum number of queries that are rewritten; `None`: all.
        threshold: Minimum Jaccard similarity of near-duplicate queries.
        seed: Seed of all random choices.
    """

    name: str
    licence: str
    version: str = "1.0.0"
    test: float = 0.2
    probabilities: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    tolerance: float = 0.3
    per_entry: int | None = None
    limit: int | None = None
    threshold: float = QUERY_SIMILARITY
    seed: int = 42

    def __post_init__(self) -> None:
        if not 0 < self.test < math.inf:
            raise BuildError(
                f"The number (or share) of test queries must be positive and finite; got {self.test}."
            )
        if (
            len(self.probabilities) != 3
            or not all(math.isfinite(p) and p >= 0 for p in self.probabilities)
            or abs(sum(self.probabilities) - 1) > 0.01
        ):
            raise BuildError(
                "Three probabilities, of positive, negative-1 and negative-2, with a sum of 1 are expected; "
                f"got {', '.join(f'{p:g}' for p in self.probabilities)}."
            )
        if not 0 < self.probabilities[0] < 1:
            raise BuildError(
                "A test needs positives and negatives for a correlation; the probability of positive must be "
                "above 0 and below 1."
            )
        if not 0 <= self.tolerance < 1:
            raise BuildError(f"tolerance must be a share from 0 to below 1; got {self.tolerance}.")
        if not 0 < self.threshold <= 1:
            raise BuildError(
                f"The threshold of near-duplicates must be between 0 and 1; got {self.threshold}."
            )
        for name, number in (("per_entry", self.per_entry), ("limit", self.limit)):
            if number is not None and number < 1:
                raise BuildError(f"{name} is a positive number, or None; got {number}.")

    def to_json(self) -> dict[str, Any]:
        """Return the settings that the data depend on, as JSON values; names are left out."""
        return {
            "test": self.test,
            "probabilities": list(self.probabilities),
            "tolerance": self.tolerance,
            "per_entry": self.per_entry,
            "limit": self.limit,
            "threshold": self.threshold,
        }
