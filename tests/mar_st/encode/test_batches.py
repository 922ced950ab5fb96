"""Batches of texts by a budget of tokens."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode.batches import token_batches


def test_batches_hold_every_text_once_within_the_budget() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    for padded in (True, False):
        batches = token_batches(lengths, 500, padded=padded)
        assert sorted(np.concatenate(batches).tolist()) == list(range(300))
        costs = [len(rows) * lengths[rows].max() if padded else lengths[rows].sum() for rows in batches]
        assert max(costs) <= 500
        assert len(batches) <= 1.25 * lengths.sum() / 500  # and the budget is used
    assert max(map(len, token_batches(lengths, 500, rows=4))) == 4
    assert [rows.tolist() for rows in token_batches([5, 200, 7], 100)] == [[1], [2, 0]]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("rows", [None, 3])
def test_lengths_never_rise_from_batch_to_batch(padded: bool, rows: int | None) -> None:
    lengths = np.random.default_rng(1).integers(1, 90, 100)
    order = np.concatenate(token_batches(lengths, 200, padded=padded, rows=rows))
    assert (np.diff(lengths[order]) <= 0).all()
    same = [part for part in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1) if len(part) > 1]
    assert same  # texts of one length keep their order
    assert all((np.diff(part) > 0).all() for part in same)


def test_without_padding_a_batch_holds_more_short_texts_beside_long_ones() -> None:
    lengths = [10, 1, 1, 1]
    assert [rows.tolist() for rows in token_batches(lengths, 13, padded=False)] == [[0, 1, 2, 3]]
    assert [rows.tolist() for rows in token_batches(lengths, 13)] == [[0], [1, 2, 3]]


def test_batches_depend_on_the_lengths_alone() -> None:
    lengths = np.random.default_rng(2).integers(1, 60, 50)
    for kind in (list, np.int32, np.float64):
        given = lengths.tolist() if kind is list else lengths.astype(kind)
        assert [rows.tolist() for rows in token_batches(given, 100)] == [
            rows.tolist() for rows in token_batches(lengths, 100)
        ]
    assert token_batches([], 100) == []
    assert [rows.dtype for rows in token_batches([3], 1)] == [np.int64]
