from __future__ import annotations

import numpy as np

from mar_st.stages.first_fit import FirstFit


class CountedKeys:
    """Keys that count how many rows of them are read."""

    def __init__(self, keys):
        self.keys, self.read = keys, 0

    def __getitem__(self, rows):
        self.read += np.size(rows)
        return self.keys[rows]


def by_scanning(rows, keys, size):
    """Batches and the rows left, by testing all rows that are left for every batch."""
    batches, left = [], rows.tolist()
    while True:
        batch, seen = [], set()
        for row in left:
            if len(batch) < size and seen.isdisjoint(keys[row].tolist()):
                batch.append(row)
                seen.update(keys[row].tolist())
        if len(batch) < size:
            return batches, left
        batches.append(batch)
        left = [row for row in left if row not in batch]


def test_batches_are_those_of_a_scan_of_all_rows_that_are_left():
    rng = np.random.default_rng(0)
    for distinct in (4, 10, 40, 1000):
        for _ in range(20):
            keys = rng.integers(0, distinct, (60, 2))
            keys[rng.random(60) < 0.3, 1] = 0
            rows = rng.permutation(60)
            fitting = FirstFit(rows, keys, 5)
            batches, left = by_scanning(rows, keys, 5)
            assert list(fitting) == batches
            assert fitting.left().tolist() == left


def test_rows_with_a_frequent_text_are_not_read_again_for_every_batch():
    number = 4000
    keys = CountedKeys(np.where(np.arange(number) % 2, -1, np.arange(number))[:, None])
    fitting = FirstFit(np.arange(number), keys, 8)
    assert sum(len(batch) for batch in fitting) == 8 * (number // 2 // 7)
    assert keys.read < 2 * number


def test_rows_that_others_fill_a_batch_with_are_not_used_again():
    keys = np.array([[0], [0], [0], [1], [2]])
    fitting = FirstFit(np.array([0, 1, 2, 3]), keys, 3)
    assert not fitting.fill()
    assert len(fitting) == 2  # rows 0 and 3
    assert fitting.fill_with(np.array([1, 3, 4]))
    assert fitting.take() == [0, 3, 4]
    assert not fitting.fill()
    assert fitting.fill_with(np.array([3, 4, 2]))
    assert fitting.take() == [1, 3, 4]
    assert fitting.left().tolist() == [2]
