"""Tests of the kind `binary`: bits of vectors, Hamming distances, and means that are damaged."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import IndexingError
from mar_st.index.kinds.binary import BinaryIndex, bits
from mar_st.index.mask import Mask
from mar_st.index.names import MEANS
from mar_st.index.source import RowsSource
from tests.mar_st.index.conftest import clustered


def built(folder, vectors, like=None):
    folder.mkdir()
    source = RowsSource([(vectors, np.arange(len(vectors)))])
    BinaryIndex.construct(folder, source, {}, like=like, progress=False)
    return BinaryIndex(folder)


def unpacked(codes, dim):
    return np.unpackbits(codes, axis=1, bitorder="little")[:, :dim].astype(bool)


@pytest.mark.parametrize("dim", [8, 13, 16, 1])
def test_a_bit_says_whether_a_value_is_above_its_mean(dim):
    vectors = clustered(50, dim)
    means = vectors.mean(axis=0)
    codes = bits(vectors, means)
    assert (codes.shape, codes.dtype) == ((50, -(-dim // 8)), np.uint8)
    np.testing.assert_array_equal(unpacked(codes, dim), vectors > means)
    assert not unpacked(codes, 8 * codes.shape[1])[:, dim:].any()
    assert not bits(means[None], means).any()


@pytest.mark.parametrize("dim", [16, 13])
def test_nearest_are_those_with_the_most_bits_in_common(tmp_path, dim):
    vectors, queries = clustered(200, dim), clustered(5, dim, seed=3)
    index = built(tmp_path / "index", vectors)
    means = np.load(tmp_path / "index" / MEANS)
    np.testing.assert_allclose(means, vectors.mean(axis=0), atol=1e-6)
    distances = ((queries > means)[:, None] != (vectors > means)[None]).sum(axis=2)
    passed = np.arange(200) % 3 > 0
    for mask, allowed in ((None, np.arange(200)), (Mask(passed), np.flatnonzero(passed))):
        scores, rows = index.nearest(queries, 20, mask, {"rescore": 1})
        np.testing.assert_array_equal(scores, -np.sort(distances[:, allowed], axis=1)[:, :20])
        np.testing.assert_array_equal(np.take_along_axis(distances, rows, 1), -scores)
        assert set(rows.ravel().tolist()) <= set(allowed.tolist())


def test_comparing_all_candidates_again_is_an_exact_search(tmp_path):
    vectors, queries = clustered(60, 16), clustered(5, 16, seed=3)
    index = built(tmp_path / "index", vectors)
    scores, rows = index.search(queries, 6, settings={"rescore": 10})
    products = queries @ vectors.T
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :6], atol=2e-3)
    np.testing.assert_allclose(np.take_along_axis(products, rows, 1), scores, atol=2e-3)


def test_an_addition_is_compared_with_the_means_of_the_first_segment(tmp_path):
    """Its own means differ; its bits would not be comparable."""
    vectors = clustered(40, 16)
    built(tmp_path / "first", vectors)
    added = built(tmp_path / "added", vectors[:5] + 1, like=tmp_path / "first")
    assert (tmp_path / "added" / MEANS).read_bytes() == (tmp_path / "first" / MEANS).read_bytes()
    scores, rows = added.nearest(vectors[:5] + 1, 1, None, {"rescore": 1})
    assert (scores == 0).all()
    assert not np.load(tmp_path / "first" / MEANS).mean() > 0.5
    assert rows.shape == (5, 1)


@pytest.mark.parametrize(
    ("means", "message"),
    [
        (np.full(16, np.nan, np.float32), "finite float32 is expected"),
        (np.full(16, np.inf, np.float32), "finite float32 is expected"),
        (np.full(16, "a"), "finite float32 is expected"),
        (np.zeros(16, "M8[s]"), "finite float32 is expected"),
        (np.zeros(16, complex), "finite float32 is expected"),
        (np.zeros(15, np.float32), r"shape \(15,\); \(16,\) is expected"),
        (np.zeros((1, 16), np.float32), r"shape \(1, 16\); \(16,\) is expected"),
    ],
)
def test_means_that_are_damaged_are_one_error(tmp_path, means, message):
    built(tmp_path / "index", clustered(40, 16)).check(40, 16)
    np.save(tmp_path / "index" / MEANS, means)
    with pytest.raises(IndexingError, match=f"{MEANS} holds .*{message}.*build it again"):
        BinaryIndex(tmp_path / "index").check(40, 16)


def test_no_addition_is_made_with_means_that_cannot_be_read(tmp_path):
    built(tmp_path / "first", clustered(40, 16))
    (tmp_path / "first" / MEANS).write_bytes(b"\x93NUMPY half")
    with pytest.raises(IndexingError, match="is not a readable array"):
        built(tmp_path / "added", clustered(5, 16), like=tmp_path / "first")
