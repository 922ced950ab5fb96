"""Storage of vectors as float32, float16, int8 with a scale per vector, or one bit per dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping

VectorType: TypeAlias = Literal["float32", "float16", "int8", "binary"]

#: NumPy type of the tensor `vectors` in a file, by storage type.
NUMPY_TYPES: dict[str, str] = {"float32": "float32", "float16": "float16", "int8": "int8", "binary": "uint8"}


def check_type(dtype: str, dim: int | None = None) -> None:
    """Refuse an unknown type, and for binary a dimension that is not a multiple of 8.

    Raises:
        MarError: The type or the dimension is refused; the message says what fits.
    """
    if dtype not in get_args(VectorType):
        raise MarError(f"Vectors are stored as {', '.join(get_args(VectorType))}; got {dtype!r}.")
    if dtype == "binary" and dim is not None and dim % 8:
        raise MarError(f"binary packs 8 dimensions into a byte, so dim must be a multiple of 8; got {dim}.")


def pack(vectors: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """Return vectors `(n, dim)` float32 converted to a storage type.

    int8 is symmetric with one scale per vector, its largest absolute value divided by 127. A bit of binary is
    1 if its dimension is above 0; the first dimension is the highest bit of the first byte (as in
    `numpy.packbits` and sentence-transformers' `ubinary`).

    Returns:
        `vectors` `(n, dim)`, for binary `(n, dim / 8)` uint8; for int8 also `scale` `(n,)` float32.

    Raises:
        MarError: A value is not finite, or beyond the range of float16.
    """
    check_type(dtype, vectors.shape[1])
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    _refuse_infinite(vectors, dtype)
    if dtype == "int8":
        scale = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        steps = vectors / np.where(scale > 0, scale, 1)[:, None]
        return {"vectors": np.rint(steps).clip(-127, 127).astype(np.int8), "scale": scale}
    if dtype == "binary":
        return {"vectors": np.packbits(vectors > 0, axis=1)}
    with np.errstate(over="ignore"):  # reported below
        converted = vectors.astype(dtype, copy=False)
    _refuse_infinite(converted, dtype)
    return {"vectors": converted}


def _refuse_infinite(vectors: np.ndarray, dtype: str) -> None:
    fine = np.isfinite(vectors).all(axis=1)
    if not fine.all():
        raise MarError(
            f"Vector {int(np.flatnonzero(~fine)[0])} holds NaN or infinite values as {dtype}. Check the "
            "model's weights, or compute in float32 and store float32."
        )


def unpack(tensors: Mapping[str, np.ndarray], dtype: str, rows: np.ndarray | slice) -> np.ndarray:
    """Return some rows of stored vectors as float32 `(rows, dim)`.

    Bits become plus or minus one over the square root of the dimension, so a vector has length 1.
    """
    stored = tensors["vectors"][rows]
    if dtype == "binary":
        bits = np.unpackbits(stored, axis=1)
        return (bits.astype(np.float32) * 2 - 1) / np.float32(np.sqrt(bits.shape[1]))
    if dtype == "int8":
        scaled: np.ndarray = stored.astype(np.float32) * tensors["scale"][rows][:, None]
        return scaled
    return stored.astype(np.float32)  # a copy, also of float32: callers get no view of a mapped file
