"""Mask of the rows of a segment that may be found."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mar_st.index.errors import need


class Mask:
    """Rows that pass a filter and are not deleted, as bits.

    Args:
        passed: True for the rows that pass, `(n,)` bool.
    """

    def __init__(self, passed: np.ndarray) -> None:
        self.size = len(passed)
        self.count = int(np.count_nonzero(passed))
        self.bits = np.packbits(passed, bitorder="little")

    @cached_property
    def rows(self) -> np.ndarray:
        """Return the rows, ascending int64."""
        return np.flatnonzero(self.flags())

    def flags(self) -> np.ndarray:
        """Return the mask, `(n,)` bool."""
        return np.unpackbits(self.bits, count=self.size, bitorder="little").view(bool)

    def selector(self) -> Any:
        """Return the mask for FAISS; it points to these bits, so the mask must outlive it."""
        return need("faiss").IDSelectorBitmap(self.bits)
