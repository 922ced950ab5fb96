"""The filter block by block: its decisions do not depend on how the vectors come."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from medteb_mteb.curation.diversify.exact import Exact
from medteb_mteb.curation.diversify.filter import DiversityFilter
from medteb_mteb.curation.diversify.product import Product
from medteb_mteb.curation.diversify.rule import SelectionRule
from medteb_mteb.curation.diversify.vectors import KeptVectors, unit
from medteb_mteb.curation.files.records import BuildError

DIM = 16
RULE = SelectionRule(0.8, seed_size=40)


def families(n=150, seed=0):
    """Vectors of any length around few centres."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((20, DIM))[rng.integers(0, 20, n)] + 0.4 * rng.standard_normal((n, DIM))
    return (vectors * rng.uniform(0.1, 10, (n, 1))).astype(np.float32)


def new(rule=RULE, *, dim=DIM, **options):
    kept, product = KeptVectors(dim), Product(float(rule.limit), dim)
    return DiversityFilter(rule, kept, Exact(rule, kept, product, tile=50), product, **options)


def fed(filtered, vectors, *cuts):
    """The decisions on vectors that come in portions."""
    edges = [0, *cuts, len(vectors)]
    parts = [filtered.feed(vectors[start:stop], start) for start, stop in pairwise(edges)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def same(left, right):
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def one_by_one():
    """The decisions of blocks of a single vector."""
    return fed(new(block=1, neighbours=True), families())


@pytest.mark.parametrize(
    ("block", "cuts"),
    [(7, ()), (7, (1, 2, 3)), (64, (40,)), (64, (39, 41)), (1000, ()), (1000, (120, 120)), (1000, (149,))],
)
def test_blocks_and_portions_change_no_decision_and_no_neighbour(one_by_one, block, cuts):
    vectors = families()
    assert same(fed(new(block=block, neighbours=True), vectors, *cuts), one_by_one)
    kept = one_by_one[0]
    assert kept[:40].all()
    assert 0.2 < kept[40:].mean() < 0.8


def test_a_dropped_vector_is_no_neighbour_of_a_later_one():
    """Each is near the one before it only; the second is dropped, so the third may stay."""
    angles = np.radians([0, 30, 60, 75])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    rule = SelectionRule(0.8, tolerated=0, seed_size=1)
    for block in (1, 2, 3, 4):
        decisions = new(rule, dim=2, block=block, neighbours=True).feed(vectors)
        assert decisions.kept.tolist() == [True, False, True, False]
        # Numbers count the kept vectors alone.
        assert decisions.neighbour.tolist() == [-1, 0, -1, 1]
        assert decisions.similarity[[1, 3]] == pytest.approx(np.cos(np.radians([30, 15])))


@pytest.mark.parametrize("block", [1, 3, 10])
def test_of_equal_neighbours_the_first_is_named(block):
    copies = np.ones((6, DIM), dtype=np.float32)
    rule = SelectionRule(0.8, tolerated=1, seed_size=0)
    decisions = new(rule, block=block, neighbours=True).feed(copies)
    assert decisions.kept.tolist() == [True, True, False, False, False, False]
    assert decisions.neighbour.tolist() == [-1, -1, 0, 0, 0, 0]


def test_a_named_neighbour_is_a_kept_vector_with_that_similarity():
    vectors = families()
    filtered = new(block=32, neighbours=True)
    kept, neighbour, similarity = fed(filtered, vectors, 100)
    dropped = np.flatnonzero(~kept)
    assert (neighbour[kept] == -1).all()
    assert np.isnan(similarity[kept]).all()
    neighbours = unit(vectors)[kept][neighbour[dropped]]
    assert np.array_equal(filtered.kept[neighbour[dropped]], neighbours)
    assert (unit(vectors)[dropped] * neighbours).sum(axis=1) == pytest.approx(similarity[dropped], abs=1e-6)


def test_without_the_wish_for_neighbours_none_is_named():
    vectors = families()
    kept, neighbour, similarity = fed(new(block=32), vectors)
    assert np.array_equal(kept, fed(new(block=32, neighbours=True), vectors)[0])
    assert (neighbour == -1).all()
    assert np.isnan(similarity).all()


@pytest.mark.parametrize("stop", [10, 40, 41, 100, 150])
def test_a_restored_filter_decides_like_one_that_never_stopped(stop):
    vectors = families()
    expected = fed(new(block=32, neighbours=True), vectors)
    rows = np.flatnonzero(expected[0][:stop])
    by_rows, by_array = new(block=32, neighbours=True), new(block=32, neighbours=True)
    by_rows.restore(vectors, rows)
    by_array.restore(vectors[rows])
    for filtered in (by_rows, by_array):
        assert len(filtered.kept) == len(rows)
        assert same(filtered.feed(vectors[stop:], stop), [column[stop:] for column in expected])


def test_a_feed_of_no_vectors_decides_nothing_and_changes_no_later_decision():
    vectors = families()
    filtered = new(block=64, neighbours=True)
    nothing = filtered.feed(vectors[:0])
    assert [len(column) for column in nothing] == [0, 0, 0]
    assert same(fed(filtered, vectors, 120, 120), fed(new(block=64, neighbours=True), vectors))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [8, 41], ids=["in the seed", "after it"])
def test_an_unusable_vector_in_a_later_block_of_a_feed_is_named_by_its_number(row, value):
    vectors = families(60)
    vectors[row, 3] = value
    with pytest.raises(BuildError, match=f"Vector {200 + row} has NaN"):
        new(SelectionRule(0.8, seed_size=10), block=7).feed(vectors, 200)
