"""Batches of rows that share no text: each row goes to the first batch that it fits."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


class FirstFit:
    """Fills one batch after another from rows in their order; rows that share a key never share a batch.

    A row that does not fit waits, and comes before all later rows in the next batch. Waiting rows are held by
    the key that kept them out, so rows with a frequent text are not tested again for a batch that has it.

    Args:
        rows: Numbers of the rows.
        keys: Integer keys of the texts of each row, `(all rows, texts)`.
        size: Rows of a batch.
    """

    def __init__(self, rows: np.ndarray, keys: np.ndarray, size: int) -> None:
        self.rows, self.keys, self.size = rows, keys, size
        self._batch: list[int] = []
        self._places: list[int] = []
        self._seen: set[int] = set()
        self._taken_elsewhere: set[int] = set()
        self._unread = self._read()
        #: Places in `rows` of waiting rows, a heap for each key that kept them out.
        self._waiting: dict[int, list[int]] = {}
        #: First place of each key, a heap; an entry that is not the first place any more is ignored.
        self._first: list[tuple[int, int]] = []
        #: Keys in `_waiting` that the batch holds.
        self._blocked: set[int] = set()

    def __iter__(self) -> Iterator[list[int]]:
        """Yield full batches until the rows that are left do not fill another one."""
        while self.fill():
            yield self.take()

    def fill(self) -> bool:
        """Fill the batch; return False if it is not full and no row that is left fits it."""
        self._fill_from_waiting()
        if len(self._batch) == self.size:
            return True
        for place, keys in self._unread:
            if self._seen.isdisjoint(keys):
                self._add(place, keys)
                if len(self._batch) == self.size:
                    return True
            else:
                self._wait(place, next(key for key in keys if key in self._seen))
        return False

    def fill_with(self, others: np.ndarray) -> bool:
        """Fill the rest of the batch with other rows, which do not wait; return False if it is not full.

        If such a row also is one of the rows that wait, it is not used a second time.
        """
        for start in range(0, len(others), self.size):
            block = others[start : start + self.size]
            for row, keys in zip(block.tolist(), self.keys[block].tolist(), strict=True):
                if len(self._batch) == self.size:
                    return True
                if self._seen.isdisjoint(keys):
                    self._batch.append(row)
                    self._seen.update(keys)
                    self._taken_elsewhere.add(row)
        return len(self._batch) == self.size

    def take(self) -> list[int]:
        """Return the batch and start the next one."""
        batch, self._batch, self._places = self._batch, [], []
        self._seen.clear()
        for key in self._blocked:
            heappush(self._first, (self._waiting[key][0], key))
        self._blocked.clear()
        return batch

    def left(self) -> np.ndarray:
        """Return all rows that are in no batch that was taken, in their order."""
        places = [*self._places, *(place for waiting in self._waiting.values() for place in waiting)]
        places += [place for place, _ in self._unread]
        return self.rows[np.sort(np.array(places, dtype=np.int64))]

    def __len__(self) -> int:
        """Return the number of rows in the batch."""
        return len(self._batch)

    def _read(self) -> Iterator[tuple[int, list[int]]]:
        for start in range(0, len(self.rows), self.size):
            block = self.rows[start : start + self.size]
            for place, keys in enumerate(self.keys[block].tolist(), start):
                if not self._taken_elsewhere or int(self.rows[place]) not in self._taken_elsewhere:
                    yield place, keys

    def _add(self, place: int, keys: list[int]) -> None:
        self._batch.append(int(self.rows[place]))
        self._places.append(place)
        self._seen.update(keys)

    def _wait(self, place: int, key: int) -> None:
        """Let a row wait until a batch starts that does not hold the key yet."""
        heappush(self._waiting.setdefault(key, []), place)
        self._blocked.add(key)

    def _fill_from_waiting(self) -> None:
        """Add waiting rows that fit, the earliest first."""
        while self._first and len(self._batch) < self.size:
            place, key = heappop(self._first)
            waiting = self._waiting.get(key)
            if not waiting or waiting[0] != place:
                continue
            if key in self._seen:
                self._blocked.add(key)
                continue
            heappop(waiting)
            if int(self.rows[place]) not in self._taken_elsewhere:
                keys = self.keys[self.rows[place]].tolist()
                if self._seen.isdisjoint(keys):
                    self._add(place, keys)
                else:
                    self._wait(place, next(other for other in keys if other in self._seen))
            if waiting:
                heappush(self._first, (waiting[0], key))
            else:
                del self._waiting[key]
                self._blocked.discard(key)
