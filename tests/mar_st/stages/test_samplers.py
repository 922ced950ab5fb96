from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset
from transformers.utils import logging

from mar_st.errors import MarError
from mar_st.stages.samplers import BatchPlan, FirstFit, TrainRows, text_columns, train_batches

RNG = np.random.default_rng(0)


def pairs(rows, *, distinct=None, name=""):
    """Rows whose positives repeat after `distinct` ones."""
    distinct = distinct or rows
    return Dataset.from_dict(
        {
            "query": [f"{name}q{index}" for index in range(rows)],
            "positive": [f"{name}d{index % distinct}" for index in range(rows)],
        }
    )


def texts_of(data, batch):
    return [text for row in TrainRows(data).__getitems__(batch) for text in (row["query"], row["positive"])]


@pytest.mark.parametrize("groups", [0, 3])
@pytest.mark.parametrize("rows", [48, 53])
def test_an_epoch_uses_every_row_once(rows, groups):
    plan = BatchPlan(rows, 8, lengths=RNG.integers(1, 100, rows), groups=groups, seed=(1,))
    batches = list(plan.epoch(0))
    used = [row for batch in batches for row in batch]
    assert [len(batch) for batch in batches] == [8] * len(plan) == [8] * (rows // 8)
    assert len(set(used)) == len(used) == rows // 8 * 8
    assert used != sorted(used)


@pytest.mark.parametrize("groups", [0, 4])
def test_equal_texts_are_never_in_one_batch(groups):
    data = {"a": pairs(96, distinct=32)}
    batches = list(train_batches(data, 8, groups=groups, seed=3))
    assert len(batches) == 12
    assert sorted(row for batch in batches for row in batch) == list(range(96))
    assert all(len(set(texts_of(data, batch))) == 16 for batch in batches)
    # Not vacuous: without the rule, batches hold equal texts.
    free = list(train_batches(data, 8, no_duplicates=False, groups=groups, seed=3))
    assert any(len(set(texts_of(data, batch))) < 16 for batch in free)


def test_equal_texts_of_different_columns_are_never_in_one_batch():
    data = {"a": Dataset.from_dict({"query": list("abcdefgh"), "positive": list("bcdefghi")})}
    for batch in train_batches(data, 2, seed=0):
        assert len(set(texts_of(data, batch))) == 4


def test_epochs_differ_and_are_repeatable():
    data = {"a": pairs(60, distinct=30), "b": pairs(40, name="b")}

    def epoch(number, seed=7):
        batches = train_batches(data, 4, groups=3, seed=seed)
        batches.set_epoch(number)
        return list(batches)

    assert epoch(0) == epoch(0)
    assert len({str(order) for order in (epoch(0), epoch(1), epoch(0, seed=8))}) == 3


def test_a_batch_holds_one_source_unless_they_are_mixed():
    data = {"a": pairs(40), "b": pairs(24, name="b")}
    rows = TrainRows(data)
    for mixed in (False, True):
        batches = list(train_batches(data, 8, mixed=mixed, seed=5))
        sources = [{row["dataset_name"] for row in rows.__getitems__(batch)} for batch in batches]
        assert len(batches) == 8
        assert sorted(row for batch in batches for row in batch) == list(range(64))
        assert (sources.count({"a", "b"}) > 4) == mixed
        if not mixed:
            assert [sources.count({name}) for name in "ab"] == [5, 3]
            assert sources != sorted(sources, key=str)


def test_length_groups_save_padding():
    lengths = np.minimum(RNG.pareto(1.5, 2000) * 40 + 5, 512).astype(int)

    def padding(groups):
        batches = BatchPlan(2000, 20, lengths=lengths, groups=groups).epoch(0)
        padded = sum(20 * lengths[batch].max() for batch in batches)
        return 1 - lengths.sum() / padded

    none, few, many = (padding(groups) for groups in (0, 5, 50))
    assert many < few < none
    assert none > 0.5
    assert many < 0.15


def test_lengths_are_those_of_the_longest_document():
    data = {
        "a": Dataset.from_dict(
            {
                "query": ["q" * (50 - n) + str(n) for n in range(40)],
                "positive": [f"{n:02}" + "p" * n for n in range(40)],
                "negative_1": [f"{n:02}" + "n" * (40 - n) for n in range(40)],
            }
        )
    }
    columns = {"a": ["positive", "negative_1"]}
    for batch in train_batches(data, 4, groups=10, document_columns=columns):
        lengths = [max(n, 40 - n) for n in batch]
        assert max(lengths) - min(lengths) <= 2  # ties of two rows per length


def test_the_last_batches_are_filled_up_where_equal_texts_are_left_over(monkeypatch):
    warned = []
    monkeypatch.setattr(logging.get_logger("mar_st.stages.samplers"), "warning_once", warned.append)
    # 40 of 64 rows share a text, so at most 24 + 1 rows could go without a repetition.
    keys = np.array([[0] if row < 40 else [row] for row in range(64)])
    plan = BatchPlan(64, 8, keys=keys)
    batches = list(plan.epoch(0))
    assert len(batches) == 8
    assert all(len({int(keys[row, 0]) for row in batch}) == 8 for batch in batches)
    assert "filled up" in warned[0]


def test_too_few_distinct_texts_are_an_error():
    with pytest.raises(MarError, match=r"only 5 different texts for a batch of 8"):
        BatchPlan(64, 8, keys=np.arange(64)[:, None] % 5)
    with pytest.raises(MarError, match=r"only 5 different texts for a batch of 8"):
        train_batches({"a": pairs(64, distinct=5)}, 8)
    # Each column has enough different texts, but they meet in other columns.
    one, other = np.arange(64) % 8, np.arange(64) % 8 // 4
    plan = BatchPlan(64, 8, keys=np.stack([one, np.where(np.arange(64) < 8, one, other)], axis=1)[:, ::-1])
    with pytest.raises(MarError, match=r"too few rows .* batch of 8"):
        list(plan.epoch(0))


def test_a_source_smaller_than_a_batch_is_an_error_unless_mixed():
    data = {"large": pairs(20), "small": pairs(5, name="s")}
    with pytest.raises(MarError, match="'small' have 5"):
        train_batches(data, 8)
    assert len(train_batches(data, 8, mixed=True)) == 3


def test_rows_come_in_the_order_asked_for_and_with_their_labels():
    data = {"a": pairs(3), "b": pairs(2, name="b").add_column("label", [[0.5, 1.0], [2.0, 3.0]])}
    rows = TrainRows(data)
    assert len(rows) == 5
    items = rows.__getitems__([4, 0, 3, 2])
    assert [row["query"] for row in items] == ["bq1", "q0", "bq0", "q2"]
    assert [row["dataset_name"] for row in items] == ["b", "a", "b", "a"]
    assert items[0]["label"] == [2.0, 3.0]
    assert text_columns(data["b"]) == ["query", "positive"]
    assert rows[1]["query"] == "q1"


def test_processes_get_rows_of_similar_lengths():
    data = {"a": Dataset.from_dict({"text": ["x" * n for n in range(1, 65)]})}
    whole, shared = (list(train_batches(data, 8, groups=8, seed=2, world=world)) for world in (1, 2))
    assert [sorted(batch) for batch in whole] == [sorted(batch) for batch in shared]
    for batch in shared:
        first, second = np.array(batch[:4]), np.array(batch[4:])
        assert abs(first.max() - second.max()) == abs(first.min() - second.min()) == 1


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
            assert fitting.left.tolist() == left
