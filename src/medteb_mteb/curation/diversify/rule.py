"""The rule of the dynamic index filter, and the settings published for queries and documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from medteb_mteb.curation.files.records import BuildError

__all__ = ["THRESHOLDS", "SelectionRule"]

#: Similarity above which a text is too close to a neighbour, by kind of text.
THRESHOLDS = {"queries": 0.85, "documents": 0.78}

#: Below this nearly any two texts are alike, and the bounds of rounded products lose their meaning.
MIN_THRESHOLD = 0.05


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """Rule by which texts are dropped (MAR, Table 10).

    The first `seed_size` texts are kept and make the index. Each further text, in order, is compared with its
    `k` nearest neighbours in the index. It is dropped if more than `tolerated` of them have a similarity
    above `threshold`, else it is kept and joins the index.

    A similarity is the inner product of two vectors of length 1 (`curation.diversify.vectors.unit`),
    in float32, as FAISS computes it for one pair (`IndexFlatIP`). It is above the threshold if it is strictly
    greater than the threshold rounded to float32. The `k` nearest hold more than `tolerated` such neighbours
    exactly if the index does, since `k` is larger; so `k` and the order of equal neighbours do not matter.

    Attributes:
        threshold: 0.85 for queries, 0.78 for documents.
        k: Number of neighbours considered.
        tolerated: Number of neighbours above the threshold that a kept text may have.
        seed_size: Number of texts at the start that are kept without a comparison.
    """

    threshold: float
    k: int = 5
    tolerated: int = 1
    seed_size: int = 5000

    def __post_init__(self) -> None:
        if not MIN_THRESHOLD <= self.threshold < 1:
            raise BuildError(
                f"The threshold is {self.threshold}; it must be {MIN_THRESHOLD} or more and below 1."
            )
        if self.tolerated < 0 or self.seed_size < 0:
            raise BuildError(
                f"tolerated is {self.tolerated} and the seed size {self.seed_size}; neither may be negative."
            )
        if self.k <= self.tolerated:
            raise BuildError(
                f"Of k = {self.k} neighbours there are never more than {self.tolerated}, so nothing would be "
                "dropped. Make k larger than the number of tolerated neighbours."
            )

    @property
    def limit(self) -> np.float32:
        """Return the threshold as similarities are compared with it."""
        return np.float32(self.threshold)

    def to_json(self) -> dict[str, Any]:
        """Return the settings for the step's manifest."""
        return asdict(self)
