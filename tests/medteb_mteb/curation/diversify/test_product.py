"""Products of rounded vectors: no pair above the threshold is missed, and none confirmed wrongly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from medteb_mteb.curation.diversify import product as module
from medteb_mteb.curation.diversify.product import Product, keeps_margin
from medteb_mteb.curation.diversify.vectors import unit

TYPES = (torch.bfloat16, torch.float32)


def at_similarity(rng, similarity, n, dim):
    """A centre, and vectors of about this similarity to it; all of length 1."""
    centre = unit(rng.standard_normal((1, dim)))[0].astype(np.float64)
    away = rng.standard_normal((n, dim))
    away -= (away @ centre)[:, None] * centre
    similarity = similarity + rng.uniform(-2e-7, 2e-7, (n, 1))
    vectors = similarity * centre + (1 - similarity**2) ** 0.5 * unit(away).astype(np.float64)
    return np.concatenate([centre[None], vectors])


def masks(product, left, right, **options):
    """Return which pairs are candidates, and which of them are sure."""
    pairs = product.find(product.round(left), product.round(right), **options)
    candidate, sure = np.zeros((2, len(left), len(right)), dtype=bool)
    candidate[pairs.left, pairs.right] = True
    sure[pairs.left, pairs.right] = pairs.sure
    assert len(pairs.left) == candidate.sum()
    return candidate, sure


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.85, 0.99])
@pytest.mark.parametrize("dim", [3, 64, 768])
def test_rounded_products_miss_no_pair_and_confirm_no_wrong_one(dtype, threshold, dim):
    rng = np.random.default_rng(7)
    near = (at_similarity(rng, threshold + d, 40, dim) for d in (-0.04, -0.004, 0, 0.004, 0.009))
    vectors = unit(np.concatenate(list(near)).astype(np.float32))
    product = Product(threshold, dim, dtype)
    assert keeps_margin(product)
    candidate, sure = masks(product, vectors, vectors)
    true = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    assert not ((true > threshold) & ~candidate).any()
    assert not (sure & (true <= threshold)).any()
    assert sure.any() or threshold == 0.99  # bfloat16 cannot be sure of it
    assert not candidate.all()


@pytest.mark.parametrize("dtype", TYPES)
def test_an_error_of_a_product_is_within_its_margin(dtype):
    rng = np.random.default_rng(0)
    left, right = unit(rng.standard_normal((50, 200))), unit(rng.standard_normal((60, 200)))
    product = Product(0.5, 200, dtype)
    one, other = product.round(left), product.round(right)
    inexact = (one.values.float() @ other.values.float().t()).double().numpy()
    errors = np.abs(inexact - left.astype(np.float64) @ right.astype(np.float64).T)
    assert 0 < errors.max() <= product.margin(one, other)
    assert product.margin(one, other) < (0.02 if dtype == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_vector_is_compared_only_with_earlier_ones_of_its_block(dtype):
    vectors = unit(np.ones((5, 8), dtype=np.float32))
    candidate, sure = masks(Product(0.5, 8, dtype), vectors, vectors, earlier=True)
    assert np.array_equal(candidate, np.tril(np.ones((5, 5), dtype=bool), -1))
    assert np.array_equal(sure, candidate)


def test_pairs_are_listed_by_row_also_if_they_come_in_slices(monkeypatch):
    rng = np.random.default_rng(1)
    left, right = unit(rng.standard_normal((40, 6))), unit(rng.standard_normal((30, 6)))
    product = Product(0.3, 6, torch.float32)
    whole = product.find(product.round(left), product.round(right))
    monkeypatch.setattr(module, "ROWS_PER_SLICE", 3)
    sliced = product.find(product.round(left), product.round(right))
    assert all(np.array_equal(*columns) for columns in zip(whole, sliced, strict=True))
    assert (np.diff(whole.left) >= 0).all()
    assert len(whole.left) > 50


def test_a_smaller_product_after_a_larger_one_sees_nothing_of_it():
    product = Product(0.5, 4, torch.float32)
    same = unit(np.ones((9, 4), dtype=np.float32))
    assert masks(product, same, same)[0].all()
    apart = unit(np.float32([[1, 0, 0, 0], [0, 1, 0, 0]]))
    assert np.array_equal(masks(product, apart, apart)[0], np.eye(2, dtype=bool))
    none = np.empty((0, 4), dtype=np.float32)
    for left, right in ((none, same), (same, none), (none, none)):
        assert not masks(product, left, right)[0].any()


def test_opposite_vectors_and_vectors_of_zeros_are_far():
    vectors = np.float32([[1, 0], [-1, 0], [0, 0]])
    for dtype in TYPES:
        assert np.array_equal(
            masks(Product(0.05, 2, dtype), vectors, vectors)[0], np.diag([True, True, False])
        )


def test_a_type_whose_products_are_too_inexact_is_found_out(monkeypatch):
    product = Product(0.5, 64, torch.bfloat16)
    assert keeps_margin(product)
    exact = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: exact(a, b) + 0.1)
    assert not keeps_margin(product)
