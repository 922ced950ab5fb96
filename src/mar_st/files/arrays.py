"""Reading `.npy` files that may be damaged."""

from __future__ import annotations

from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0, read_magic

from mar_st.files import one_line

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["load_array"]


def load_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Return the array of an `.npy` file; pickles are refused.

    numpy reads a header as a Python literal, so the exception for a damaged one depends on the damage.

    Args:
        path: The file.
        mapped: Map the file into memory, read-only.

    Raises:
        ValueError: The file is damaged.
        OSError: The file cannot be read.
    """
    with path.open("rb") as stream:  # numpy would take archives and pickles, too
        if stream.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise ValueError("it is not an .npy file")
    try:
        _check_element(path)
        array: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (EOFError, SyntaxError, TokenError, TypeError, ArithmeticError, MemoryError, ValueError) as error:
        raise ValueError(f"its header is damaged: {one_line(error)}") from error  # numpy's take several lines
    return array


def _check_element(path: Path) -> None:
    """Make sure that elements are single values: numpy changes the shape of others when it maps them.

    Raises:
        ValueError: The elements are arrays, or the header is damaged.
    """
    with path.open("rb") as stream:
        read = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}.get(read_magic(stream))
        if read is not None and read(stream)[2].subdtype is not None:
            raise ValueError("elements are arrays")
