"""The exact index and the comparison within a block: all pairs above the threshold, and no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from medteb_mteb.curation.diversify.exact import Exact, within
from medteb_mteb.curation.diversify.product import Product
from medteb_mteb.curation.diversify.rule import SelectionRule
from medteb_mteb.curation.diversify.vectors import KeptVectors, inner_products, unit

DTYPES = [torch.bfloat16, torch.float32]
DIM = 24


def families(n, seed=0, dim=DIM):
    """Vectors of length 1 around few centres, some of them twice, one of zeros."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((max(2, n // 8), dim))[rng.integers(0, max(2, n // 8), n)]
    vectors = unit(vectors + 0.5 * rng.standard_normal((n, dim)))
    vectors[n // 2] = vectors[0]
    vectors[n // 3] = 0
    return vectors


def filled(stored, rule, *, dtype=None, tile=7, portion=5):
    """An index of some vectors that were added in portions."""
    kept = KeptVectors(stored.shape[1])
    index = Exact(rule, kept, Product(float(rule.limit), stored.shape[1], dtype), tile=tile)
    for start in range(0, len(stored), portion):
        rows = np.arange(start, min(start + portion, len(stored)))
        kept.add(stored, rows)
        index.add(stored[rows])
    return index


def every_similarity(left, right):
    i, j = (axis.ravel() for axis in np.indices((len(left), len(right))))
    return inner_products(left, i, right, j).reshape(len(left), len(right))


def listed(pairs):
    return {
        (i, j): s for i, j, s in zip(*(column.tolist() for column in pairs), strict=True)
    }  # a pair that is listed twice would be counted twice


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tile", "portion"), [(1, 3), (7, 5), (16, 64), (1000, 1000)])
def test_the_pairs_are_those_of_a_comparison_with_every_vector(dtype, tile, portion):
    rule = SelectionRule(0.7)
    stored, queries = families(90), families(40, seed=1)
    queries[:5] = stored[::20][:5]
    pairs = filled(stored, rule, dtype=dtype, tile=tile, portion=portion).above(queries)
    similarities = every_similarity(queries, stored)
    expected = {tuple(pair): similarities[tuple(pair)] for pair in np.argwhere(similarities > rule.limit)}
    assert listed(pairs) == expected
    assert len(pairs.left) == len(expected) > 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("every", [True, False])
def test_similarities_near_the_threshold_are_not_decided_by_rounded_products(dtype, every):
    rng = np.random.default_rng(0)
    stored = unit(rng.standard_normal((600, DIM)))
    away = rng.standard_normal((600, DIM))
    away = unit(away - (away * stored).sum(axis=1, keepdims=True) * stored)
    wanted = 0.85 + rng.uniform(-3e-3, 3e-3, (600, 1))
    queries = unit(wanted * stored + np.sqrt(1 - wanted**2) * away)
    rule = SelectionRule(0.85, k=601, tolerated=600)
    pairs = filled(stored, rule, dtype=dtype, tile=97, portion=97).above(queries, all_of_them=every)
    expected = [tuple(pair) for pair in np.argwhere(every_similarity(queries, stored) > rule.limit).tolist()]
    assert sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == expected
    assert 200 < sum(i == j for i, j in expected) < 400


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tolerated", [0, 1, 3])
def test_a_search_that_may_stop_drops_the_same_vectors(dtype, tolerated):
    rule = SelectionRule(0.7, tolerated=tolerated)
    stored, queries = families(150), families(60, seed=0)
    index = filled(stored, rule, dtype=dtype, tile=16)
    whole, part = (index.above(queries, all_of_them=every) for every in (True, False))
    dropped = np.bincount(whole.left, minlength=60) > tolerated
    assert np.array_equal(np.bincount(part.left, minlength=60) > tolerated, dropped)
    assert 0 < dropped.sum() < 60
    assert listed(part).keys() <= listed(whole).keys()
    # Of a vector that is not dropped all neighbours count, since later ones of its block may add to them.
    settled = [pair for pair in listed(whole) if not dropped[pair[0]]]
    assert set(settled) == {pair for pair in listed(part) if not dropped[pair[0]]}


def test_an_empty_index_has_no_neighbours():
    index = filled(np.empty((0, DIM), dtype=np.float32), SelectionRule(0.8))
    for every in (True, False):
        pairs = index.above(families(6), all_of_them=every)
        assert [len(column) for column in pairs] == [0, 0, 0]


def test_a_vector_of_zeros_is_similar_to_nothing():
    zeros = np.zeros((3, DIM), dtype=np.float32)
    rule = SelectionRule(0.05)
    assert not len(filled(zeros, rule).above(zeros).left)
    assert not len(within(Product(0.05, DIM), rule, zeros).left)


def test_vectors_added_after_a_search_are_found_by_the_next():
    rule = SelectionRule(0.9)
    stored = families(20)
    index = filled(stored[:10], rule)
    assert 15 not in index.above(stored[15:16]).right
    index.kept.add(stored, np.arange(10, 20))
    index.add(stored[10:])
    assert index.above(stored[15:16]).right.tolist().count(15) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("every", [True, False])
def test_within_a_block_a_vector_meets_only_earlier_ones(dtype, every):
    rule = SelectionRule(0.7)
    block = families(80)
    pairs = within(Product(float(rule.limit), DIM, dtype), rule, block, all_of_them=every)
    similarities = np.tril(every_similarity(block, block), -1)
    expected = [tuple(pair) for pair in np.argwhere(similarities > rule.limit).tolist()]
    assert sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == expected
    assert len(expected) > 10
    known = ~np.isnan(pairs.similarity)
    assert known.all() or not every
    assert np.array_equal(pairs.similarity[known], similarities[pairs.left, pairs.right][known])
