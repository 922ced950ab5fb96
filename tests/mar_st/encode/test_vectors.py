"""Rows of several sources are read as one matrix."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode.vectors import Vectors, unit
from mar_st.errors import MarError


def test_sources_are_read_one_after_the_other() -> None:
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    source = Vectors([Vectors([vectors], np.array([7, 3])), vectors.astype(np.float16)])
    assert source.shape == (302, 8)
    np.testing.assert_allclose(source[[1, 2, 0]], vectors[[3, 0, 7]], atol=1e-3)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(100)))[2:], vectors.astype(np.float16))
    np.testing.assert_array_equal(source.select(np.array([1]))[0], vectors[3])
    with pytest.raises(MarError, match="have only 8 dimensions"):
        Vectors([vectors], dim=9)
    whole = Vectors([3 * vectors], normalised=True)
    np.testing.assert_allclose(np.linalg.norm(whole[5:9], axis=1), 1, rtol=1e-6)


def test_lengths_beyond_the_squares_of_float32_are_normalised() -> None:
    large = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0]], np.float32)
    np.testing.assert_allclose(unit(large), [[0.6, 0.8], [0.6, 0.8], [0, 0]], atol=1e-6)
