"""The exact index: every vector above the threshold, found by products of rounded matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from medteb_mteb.curation.diversify.product import CandidatePairs, Product, Rounded
from medteb_mteb.curation.diversify.vectors import KeptVectors, Pairs, inner_products, similarities

if TYPE_CHECKING:
    from medteb_mteb.curation.diversify.rule import SelectionRule

__all__ = ["Exact", "within"]

#: Vectors of a matrix product's right side.
TILE = 2048


class Exact:
    """Compares with all kept vectors.

    It holds a rounded copy of them in tiles (2 bytes per element in bfloat16); the vectors themselves are
    read again only for pairs too close to the threshold.

    Args:
        rule: The rule.
        kept: The kept vectors; every vector added to it must also be added to the index.
        product: Finds pairs above the threshold.
        tile: Number of kept vectors compared at once.
    """

    def __init__(self, rule: SelectionRule, kept: KeptVectors, product: Product, *, tile: int = TILE) -> None:
        self.rule, self.kept, self.product, self.tile = rule, kept, product, tile
        self._tiles: list[Rounded] = []
        self._filled = 0

    def add(self, vectors: np.ndarray) -> None:
        """Add kept vectors of length 1, `(n, dim)` float32."""
        while len(vectors):
            if self._filled == len(self._tiles) * self.tile:
                values = torch.empty(self.tile, self.kept.dim, dtype=self.product.dtype)
                self._tiles.append(Rounded(values, 0.0, 0.0))
            tile, start = self._tiles[-1], self._filled % self.tile
            new = self.product.round(vectors[: self.tile - start])
            tile.values[start : start + len(new.values)] = new.values
            tile.length, tile.lost = max(tile.length, new.length), max(tile.lost, new.lost)
            self._filled += len(new.values)
            vectors = vectors[len(new.values) :]

    def above(self, vectors: np.ndarray, *, all_of_them: bool = True) -> Pairs:
        """Return the kept vectors that are above the threshold for vectors of length 1.

        Args:
            vectors: `(m, dim)` float32.
            all_of_them: Return all pairs with their similarities; if false, only as many as drop a vector.
        """
        block = self.product.round(vectors)
        open_rows = np.arange(len(vectors))
        counts = np.zeros(len(vectors), dtype=np.int64)
        candidates = []
        for number in reversed(range(len(self._tiles))):  # similar texts are often close in the source
            tile = self._tiles[number]
            filled = min(self.tile, self._filled - number * self.tile)
            block_pairs = self.product.find(block, Rounded(tile.values[:filled], tile.length, tile.lost))
            rows = open_rows[block_pairs.left]
            candidates.append(CandidatePairs(rows, block_pairs.right + number * self.tile, block_pairs.sure))
            if all_of_them:
                continue
            counts += np.bincount(rows[block_pairs.sure], minlength=len(counts))
            done = counts[open_rows] > self.rule.tolerated
            if done.mean() > 0.1:
                open_rows = open_rows[~done]
                if not len(open_rows):
                    break
                block = Rounded(block.values[torch.from_numpy(~done)], block.length, block.lost)
        if not candidates:
            candidates.append(CandidatePairs(*(np.empty(0, dtype=np.int64),) * 2, np.empty(0, dtype=bool)))
        pairs = CandidatePairs(*(np.concatenate(column) for column in zip(*candidates, strict=True)))
        computed = np.ones_like(pairs.sure)
        if not all_of_them:
            computed = ~pairs.sure & (counts[pairs.left] <= self.rule.tolerated)
        similarity = np.full(len(computed), np.nan, dtype=np.float32)
        similarity[computed] = similarities(vectors, pairs.left[computed], self.kept, pairs.right[computed])
        return _above(pairs, similarity, self.rule.limit)


def within(product: Product, rule: SelectionRule, vectors: np.ndarray, *, all_of_them: bool = True) -> Pairs:
    """Return the pairs of a vector and an earlier one of the same block that are above the threshold.

    Args:
        product: Finds pairs above the threshold.
        rule: The rule.
        vectors: `(m, dim)` float32 of length 1.
        all_of_them: Return all pairs with their similarities.
    """
    block = product.round(vectors)
    pairs = product.find(block, block, earlier=True)
    computed = np.ones_like(pairs.sure) if all_of_them else ~pairs.sure
    similarity = np.full(len(computed), np.nan, dtype=np.float32)
    similarity[computed] = inner_products(vectors, pairs.left[computed], vectors, pairs.right[computed])
    return _above(pairs, similarity, rule.limit)


def _above(pairs: CandidatePairs, similarity: np.ndarray, limit: np.float32) -> Pairs:
    above = (similarity > limit) | (np.isnan(similarity) & pairs.sure)
    return Pairs(pairs.left[above], pairs.right[above], similarity[above])
