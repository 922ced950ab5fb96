"""Tests of rows in int8 and their scales."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.export.rows import int8_rows


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_values_are_restored_to_half_a_step_of_their_row(size):
    vectors = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32) * np.float32(size)
    vectors[::2] /= 100  # every row has a scale of its own
    table, scales = int8_rows(vectors)
    assert (table.dtype, scales.dtype, table.shape, scales.shape) == (np.int8, np.float32, (50, 16), (50,))
    error = np.abs(table * scales[:, None].astype(np.float64) - vectors)
    assert (error <= 0.5001 * scales[:, None]).all()
    assert (np.abs(table.astype(int)).max(axis=1) == 127).all()


@pytest.mark.filterwarnings("error")
def test_a_row_of_zeros_and_one_of_the_smallest_numbers_stay_finite():
    vectors = np.array([[0, 0], [1e-44, -1e-44]], dtype=np.float32)
    table, scales = int8_rows(vectors)
    assert (scales > 0).all()
    np.testing.assert_array_equal(table, 0)
