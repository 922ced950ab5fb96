"""Tests of the forms in which vectors are stored: what is lost, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode.codes import NUMPY_TYPES, check_type, pack, unpack
from mar_st.errors import MarError

ALL = slice(None)


def vectors(number: int = 50, dim: int = 16) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((number, dim)).astype(np.float32)


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_rows_are_those_of_the_whole_and_do_not_share_its_memory(dtype: str) -> None:
    packed = pack(vectors(), dtype)
    assert packed["vectors"].dtype == NUMPY_TYPES[dtype]
    whole = unpack(packed, dtype, ALL)
    assert (whole.dtype, whole.shape) == (np.float32, (50, 16))
    for rows in (np.array([7, 0, 49, 7]), slice(3, 20, 4), np.array([], dtype=int)):
        np.testing.assert_array_equal(unpack(packed, dtype, rows), whole[rows])
    whole[:] = 0
    assert unpack(packed, dtype, ALL).any()


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_int8_is_at_most_half_a_step_from_the_value(scale: float) -> None:
    given = vectors() * np.float32(scale)
    step = np.abs(given).max(axis=1, keepdims=True) / 127
    assert (np.abs(unpack(pack(given, "int8"), "int8", ALL) - given) <= step * 0.5001).all()


def test_float32_is_exact_and_float16_rounds() -> None:
    np.testing.assert_array_equal(unpack(pack(vectors(), "float32"), "float32", ALL), vectors())
    rounded = unpack(pack(vectors(), "float16"), "float16", ALL)
    np.testing.assert_array_equal(rounded, vectors().astype(np.float16))


def test_a_bit_is_set_where_the_value_is_above_zero_the_first_bit_highest() -> None:
    given = np.array([[1, -1, 0, 1e-30, -0.0, 5, -5, 2]], dtype=np.float32)
    packed = pack(given, "binary")
    assert packed["vectors"].tolist() == [[0b10010101]]
    signs = np.array([[1, -1, -1, 1, -1, 1, -1, 1]])
    np.testing.assert_allclose(unpack(packed, "binary", ALL), signs / np.sqrt(8), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_vector_of_zeros_stays_one(dtype: str) -> None:
    given = np.concatenate([np.zeros((1, 8)), vectors(1, 8), np.zeros((1, 8))])
    np.testing.assert_array_equal(unpack(pack(given, dtype), dtype, ALL).any(axis=1), [False, True, False])


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_in_every_form(dtype: str, value: float) -> None:
    broken = vectors()
    broken[3, 2] = value
    with pytest.raises(MarError, match=f"Vector 3 holds NaN or infinite values as {dtype}"):
        pack(broken, dtype)


def test_values_beyond_float16_are_refused() -> None:
    broken = vectors()
    broken[3, 2] = 1e6
    with pytest.raises(MarError, match=r"Vector 3 .* as float16"):
        pack(broken, "float16")


@pytest.mark.parametrize(
    ("dtype", "dim", "message"),
    [
        ("int4", 16, "Vectors are stored as float32, float16, int8, binary; got 'int4'"),
        (None, None, "got None"),
        ("binary", 12, "multiple of 8; got 12"),
    ],
)
def test_unknown_types_and_dimensions_are_refused(dtype: str, dim: int, message: str) -> None:
    with pytest.raises(MarError, match=message):
        check_type(dtype, dim)
