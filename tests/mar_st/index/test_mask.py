"""Tests of the mask of rows that may be found."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from mar_st.index.mask import Mask

SIZES = [0, 1, 7, 8, 9, 64, 1001]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_bits_hold_the_rows_that_pass(size, share):
    passed = np.random.default_rng(size).random(size) < share
    mask = Mask(passed)
    np.testing.assert_array_equal(mask.flags(), passed)
    assert mask.flags().dtype == bool
    np.testing.assert_array_equal(mask.rows, np.flatnonzero(passed))
    assert (mask.size, mask.count) == (size, passed.sum())


@pytest.mark.parametrize("size", SIZES[1:])
def test_faiss_finds_the_rows_of_the_mask_alone(size):
    passed = np.random.default_rng(1).random(size) < 0.5
    passed[-1] = True
    vectors = np.random.default_rng(2).standard_normal((size, 4)).astype(np.float32)
    index = faiss.IndexFlatIP(4)
    index.add(vectors)
    mask = Mask(passed)
    options = faiss.SearchParameters(sel=mask.selector())
    _, found = index.search(vectors[:1], size, params=options)
    assert sorted(found[found >= 0]) == np.flatnonzero(passed).tolist()
