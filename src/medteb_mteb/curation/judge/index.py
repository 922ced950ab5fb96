"""Index of the grades in the log, kept in memory and built when a journal is opened.

On disk it would be a tree in the order of digests, and each answer would change as many pages as it has
grades. In memory it takes 16 bytes per grade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["GradeIndex"]

#: Grades that are collected in a dict before they are merged into the sorted arrays.
MAX_RECENT = 1 << 16
#: Bits of a place that say which grade of the entry it is.
POSITION_BITS = 16


class GradeIndex:
    """Map from the first eight bytes of a key to its places: number of an entry, and position in it.

    Keys with the same first bytes share a slot, so compare the stored key.
    """

    def __init__(self) -> None:
        self._heads: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._places: NDArray[np.int64] = np.empty(0, np.int64)
        self._recent: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return the number of grades."""
        return len(self._heads) + len(self._recent)

    def add(self, number: int, graded: Iterable[tuple[bytes, int]]) -> None:
        """Add grades of an entry.

        Args:
            number: The entry.
            graded: Key and position of each grade; none of the keys is in the index yet.
        """
        for key, position in graded:
            self._recent[key] = number << POSITION_BITS | position
        if len(self._recent) >= MAX_RECENT:
            self._merge()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, list[tuple[int, int]]]:
        """Return the places (number of the entry, position) where a grade of a key may be."""
        slots: dict[bytes, list[int]] = {}
        if len(self._heads) and keys:
            heads = _heads(keys)
            starts = np.searchsorted(self._heads, heads, "left")
            ends = np.searchsorted(self._heads, heads, "right")
            for i in np.flatnonzero(ends > starts).tolist():
                slots[keys[i]] = self._places[starts[i] : ends[i]].tolist()
        for key in keys:
            if (place := self._recent.get(key)) is not None:
                slots.setdefault(key, []).append(place)
        mask = (1 << POSITION_BITS) - 1
        return {
            key: [(place >> POSITION_BITS, place & mask) for place in places] for key, places in slots.items()
        }

    def _merge(self) -> None:
        heads = np.concatenate([self._heads, _heads(list(self._recent))])
        places = np.concatenate([self._places, np.fromiter(self._recent.values(), np.int64)])
        order = np.argsort(heads, kind="stable")
        self._heads, self._places, self._recent = heads[order], places[order], {}


def _heads(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(key[:8] for key in keys), ">u8").astype(np.uint64)
