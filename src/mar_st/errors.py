"""The errors that users can fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class MarError(ValueError):
    """An input of the caller is invalid.

    The message says what was expected, what was given, and what to do next.
    """


class NotFiniteVectorError(MarError):
    """A stored vector holds NaN, infinite values or values beyond float32.

    Args:
        path: File of the vector.
        place: Row of the vector in this file.
        row: Row of the vector among those that its reader gives out.
    """

    def __init__(self, path: Path, place: int, row: int) -> None:
        self.row = row
        super().__init__(
            f"Vector {place} of {path} holds NaN, infinite values or values beyond float32. Compute these "
            "vectors again."
        )
