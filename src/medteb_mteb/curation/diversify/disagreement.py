"""Share of an approximate index's decisions that an exact search of the same kept vectors contradicts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.diversify.product import Product
from medteb_mteb.curation.diversify.vectors import inner_products, unit

if TYPE_CHECKING:
    import torch

    from medteb_mteb.curation.diversify.rule import SelectionRule
    from medteb_mteb.curation.diversify.vectors import Rows

__all__ = ["SAMPLE_SIZE", "Disagreement", "measure_disagreement"]

#: Texts whose decisions are checked.
SAMPLE_SIZE = 1000
VECTORS_PER_BLOCK = 4096
#: Half the width of a 95 % interval in standard deviations.
Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Decisions of a sample that an exact search would have reversed.

    Attributes:
        sampled: Number of decisions that were checked.
        kept: Of these, number kept although an exact search finds enough neighbours to drop them.
        dropped: Of these, number dropped although an exact search does not.
    """

    sampled: int
    kept: int
    dropped: int

    @property
    def share(self) -> float:
        """Return the share of the checked decisions that would be reversed."""
        return (self.kept + self.dropped) / self.sampled if self.sampled else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's 95 % interval of the share."""
        if not self.sampled:
            return 0.0, 1.0
        n, p = self.sampled, self.share
        middle = p + Z_95 * Z_95 / (2 * n)
        half = Z_95 * (p * (1 - p) / n + Z_95 * Z_95 / (4 * n * n)) ** 0.5
        scale = 1 + Z_95 * Z_95 / n
        low = (middle - half) / scale if p else 0.0
        return low, (middle + half) / scale if p < 1 else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return count, share and interval."""
        return {**asdict(self), "share": self.share, "interval": list(self.interval)}


def measure_disagreement(
    vectors: Rows,
    kept: np.ndarray,
    rule: SelectionRule,
    *,
    sample: int = SAMPLE_SIZE,
    seed: int = 42,
    dtype: torch.dtype | None = None,
) -> Disagreement:
    """Check the decisions about some vectors, drawn at random among those after the seed.

    Each is compared with every vector before it that was kept. One reversed decision may have changed later
    ones; a decision counts as right if it is right for what was kept before it.

    Args:
        vectors: `(n, dim)` floats, in the order of the decisions.
        kept: Whether each vector was kept, `(n,)` bool.
        rule: The rule of the decisions.
        sample: Number of decisions to check; all of them if there are fewer.
        seed: Seed of the draw.
        dtype: See `diversify`.
    """
    candidates = np.arange(min(rule.seed_size, len(kept)), len(kept))
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(candidates, min(sample, len(candidates)), replace=False))
    counts = np.zeros(len(rows), dtype=np.int64)
    if len(rows):
        checked = unit(vectors[rows])
        product = Product(float(rule.limit), checked.shape[1], dtype)
        left = product.round(checked)
        for start in range(0, int(rows[-1]), VECTORS_PER_BLOCK):
            kept_rows = start + np.flatnonzero(kept[start : start + VECTORS_PER_BLOCK])
            block = unit(vectors[kept_rows])
            pairs = product.find(left, product.round(block))
            earlier = kept_rows[pairs.right] < rows[pairs.left]
            i, j = pairs.left[earlier], pairs.right[earlier]
            above = inner_products(checked, i, block, j) > rule.limit
            counts += np.bincount(i[above], minlength=len(rows))
    drop = counts > rule.tolerated
    return Disagreement(len(rows), int((kept[rows] & drop).sum()), int((~kept[rows] & ~drop).sum()))
