"""Vectors of length 1, the numbers of kept ones, and similarities bit for bit as FAISS computes them."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from medteb_mteb.curation.diversify import vectors as module
from medteb_mteb.curation.diversify.vectors import (
    KeptVectors,
    NotFiniteError,
    Pairs,
    inner_products,
    similarities,
    unit,
)


def drawn(n, dim=24, seed=0):
    """Vectors of many lengths."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, dim)) * rng.uniform(0.1, 10, (n, 1))).astype(np.float32)


def test_vectors_get_length_one_and_keep_their_direction():
    vectors = drawn(50)
    scaled = unit(vectors)
    assert np.linalg.norm(scaled.astype(np.float64), axis=1) == pytest.approx(np.ones(50), abs=1e-6)
    lengths = (scaled * vectors).sum(axis=1, keepdims=True)
    assert scaled * lengths == pytest.approx(vectors, rel=1e-4, abs=1e-5)


def test_the_bits_of_a_vector_do_not_depend_on_the_others():
    vectors = drawn(300, 77)
    whole = unit(vectors)
    assert np.array_equal(whole, np.concatenate([unit(vectors[i : i + 1]) for i in range(300)]))
    assert np.array_equal(whole[::7], unit(vectors[::7]))
    assert np.array_equal(whole, unit(np.asfortranarray(vectors)))


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e30, 2e38])
def test_the_smallest_and_largest_vectors_have_length_one_too(scale):
    assert np.linalg.norm(unit(np.float32([[scale, -scale / 2]]))) == pytest.approx(1, abs=1e-6)
    assert not unit(np.zeros((1, 4), dtype=np.float32)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_first_unusable_vector_is_named_by_its_number(value, dtype):
    vectors = drawn(9).astype(dtype)
    vectors[[4, 7], 2] = value
    with pytest.raises(NotFiniteError, match="Vector 104 has NaN or infinite values") as caught:
        unit(vectors, 100)
    assert caught.value.row == 104


def test_kept_vectors_are_numbered_in_the_order_they_were_kept():
    first, second = drawn(6), drawn(5, seed=1)
    kept = KeptVectors(24)
    for source, rows in ((first, [5, 0]), (second, []), (second, [1, 3]), (first, [2])):
        kept.add(source, np.array(rows, dtype=np.int64))
    expected = unit(np.stack([first[5], first[0], second[1], second[3], first[2]]))
    assert len(kept) == 5
    numbers = np.array([4, 0, 2, 2, 1, 3])
    assert np.array_equal(kept[numbers], expected[numbers])
    assert kept[np.array([], dtype=np.int64)].shape == (0, 24)


def test_inner_products_are_those_of_a_search_one_by_one():
    vectors = unit(drawn(120, 100))
    vectors[5] = vectors[80]
    index = faiss.IndexFlatIP(100)
    index.add(vectors)
    near, numbers = zip(*(index.search(vectors[i : i + 1], 120) for i in range(120)), strict=True)
    rows, columns = np.repeat(np.arange(120), 120), np.concatenate(numbers, axis=1)[0]
    expected = np.concatenate(near, axis=1)[0]
    assert np.array_equal(inner_products(vectors, rows, vectors, columns), expected)
    none = np.array([], dtype=np.int64)
    assert inner_products(vectors, none, vectors, none).shape == (0,)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_similarities_to_kept_vectors_are_those_inner_products(monkeypatch, chunk):
    monkeypatch.setattr(module, "PAIRS_PER_CHUNK", chunk)
    source, block = drawn(30), unit(drawn(10, seed=1))
    kept = KeptVectors(24)
    kept.add(source, np.arange(29, -1, -1))
    rng = np.random.default_rng(2)
    left, right = rng.integers(0, 10, 60), rng.integers(0, 30, 60)
    expected = inner_products(block, left, unit(source[::-1]), right)
    assert np.array_equal(similarities(block, left, kept, right), expected)


def test_a_mask_selects_whole_pairs():
    pairs = Pairs(np.array([0, 1, 2]), np.array([5, 6, 7]), np.float32([0.5, 0.6, 0.7]))
    chosen = pairs.where(np.array([True, False, True]))
    assert [column.tolist() for column in chosen[:2]] == [[0, 2], [5, 7]]
    assert chosen.similarity == pytest.approx([0.5, 0.7])
