"""The dynamic index filter, block by block, with the decisions of the loop that takes one text at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mar_st.files import counted
from medteb_mteb.curation.diversify.exact import within
from medteb_mteb.curation.diversify.vectors import KeptVectors, Pairs, unit

if TYPE_CHECKING:
    from medteb_mteb.curation.diversify.product import Product
    from medteb_mteb.curation.diversify.rule import SelectionRule
    from medteb_mteb.curation.diversify.vectors import Rows

logger = logging.getLogger(__name__)

__all__ = ["VECTORS_PER_BLOCK", "Decisions", "DiversityFilter", "NeighbourIndex"]

#: Vectors that are compared with the index at once.
VECTORS_PER_BLOCK = 2048


class NeighbourIndex(Protocol):
    """Index of kept vectors that new ones are compared with."""

    def add(self, vectors: np.ndarray) -> None:
        """Add kept vectors of length 1, `(n, dim)` float32."""

    def above(self, vectors: np.ndarray, *, all_of_them: bool = True) -> Pairs:
        """Return the kept vectors above the threshold; see `Exact.above`."""


class Decisions(NamedTuple):
    """Decisions on some vectors.

    Attributes:
        kept: Whether each vector is kept, `(m,)` bool.
        neighbour: Number of the most similar kept vector of a dropped one (of equal ones the first), -1 for a
            kept one; `(m,)` int64. All -1 unless requested.
        similarity: Similarity of that neighbour, `(m,)` float32; NaN if there is none.
    """

    kept: np.ndarray
    neighbour: np.ndarray
    similarity: np.ndarray


class DiversityFilter:
    """Decides about vectors one after the other, in order.

    A block is compared with the index at once. Whether a text is dropped then still depends on the texts of
    its own block that are kept before it, so those that have such neighbours are settled one after the other.

    Args:
        rule: The rule.
        kept: Receives the kept vectors; empty at first.
        index: Index of the kept vectors; it reads from the same `kept`.
        product: Finds neighbours within a block.
        block: Number of vectors compared with the index at once.
        neighbours: Also return the neighbour of each dropped vector.

    Attributes:
        zeros: Number of vectors of zeros, all of which are kept.
    """

    def __init__(
        self,
        rule: SelectionRule,
        kept: KeptVectors,
        index: NeighbourIndex,
        product: Product,
        *,
        block: int = VECTORS_PER_BLOCK,
        neighbours: bool = False,
    ) -> None:
        self.rule, self.kept, self.index, self.product = rule, kept, index, product
        self.block, self.neighbours = block, neighbours
        self.zeros = 0

    def warn(self) -> None:
        """Log a warning if texts were kept because their vectors are zeros."""
        if self.zeros:
            logger.warning(
                "%s kept because a vector of zeros is similar to nothing; static models give one to a text "
                "without known words. If the model is of another kind, encode the texts again.",
                counted(self.zeros, "text was", "texts were"),
            )

    def restore(self, vectors: Rows, rows: np.ndarray | None = None) -> None:
        """Add vectors that an earlier run kept, in order; all, or those of some rows."""
        rows = np.arange(len(vectors)) if rows is None else rows
        for start, stop in _blocks(0, len(rows), self.block):
            block_rows = rows[start:stop]
            self._keep(vectors, block_rows, unit(vectors[block_rows], start))

    def feed(self, vectors: Rows, first: int = 0) -> Decisions:
        """Decide about the next vectors.

        Args:
            vectors: `(m, dim)`; they are normalised to length 1.
            first: Number of the first vector, for messages.

        Raises:
            BuildError: A vector has NaN or infinite values.
        """
        # All vectors of the seed are kept, so the seed lacks `seed_size` minus the number of kept ones.
        seed = min(len(vectors), max(0, self.rule.seed_size - len(self.kept)))
        decisions = []
        for start, stop in [*_blocks(0, seed, self.block), *_blocks(seed, len(vectors), self.block)]:
            rows = np.arange(start, stop)
            block = unit(vectors[start:stop], first + start)
            decision = _all_kept(len(block)) if start < seed else self._decide(block)
            self._keep(vectors, rows[decision.kept], block[decision.kept])
            decisions.append(decision)
        if not decisions:
            return _all_kept(0)
        return Decisions(*(np.concatenate(column) for column in zip(*decisions, strict=True)))

    def _keep(self, source: Rows, rows: np.ndarray, vectors: np.ndarray) -> None:
        self.zeros += int(np.count_nonzero(~vectors.any(axis=1)))
        self.kept.add(source, rows)
        self.index.add(vectors)

    def _decide(self, block: np.ndarray) -> Decisions:
        old = self.index.above(block, all_of_them=self.neighbours)
        counts = np.bincount(old.left, minlength=len(block))
        new = within(self.product, self.rule, block, all_of_them=self.neighbours)
        kept = counts <= self.rule.tolerated
        rows, starts = np.unique(new.left, return_index=True)
        stops = np.searchsorted(new.left, rows, side="right")
        for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
            if kept[row]:
                kept[row] = counts[row] + kept[new.right[start:stop]].sum() <= self.rule.tolerated
        decisions = _all_kept(len(block))._replace(kept=kept)
        if self.neighbours:
            joined = kept[new.right]
            numbers = len(self.kept) + np.cumsum(kept) - 1
            _note(decisions, [old, Pairs(new.left, numbers[new.right], new.similarity).where(joined)])
        return decisions


def _note(decisions: Decisions, parts: list[Pairs]) -> None:
    """Write down the most similar neighbour of each dropped vector."""
    pairs = Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    pairs = pairs.where(~decisions.kept[pairs.left])
    order = np.lexsort((pairs.right, -pairs.similarity, pairs.left))
    rows, first = np.unique(pairs.left[order], return_index=True)
    decisions.neighbour[rows] = pairs.right[order][first]
    decisions.similarity[rows] = pairs.similarity[order][first]


def _all_kept(number: int) -> Decisions:
    nobody, nothing = np.full(number, -1, dtype=np.int64), np.full(number, np.nan, dtype=np.float32)
    return Decisions(np.ones(number, dtype=bool), nobody, nothing)


def _blocks(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]
