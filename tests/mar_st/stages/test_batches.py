"""Tests of batches: collated rows with a record of what they hold, and mixtures that are refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from mar_st.stages.batches import RECORD_KEY, RecordingCollator, check_mixture
from mar_st.stages.samplers import SOURCE_COLUMN, BatchError
from tests.mar_st.stages import helpers

ROWS = [
    {"query": "头疼", "positive": "头疼吃什么药好", SOURCE_COLUMN: "a"},
    {"query": "高血压怎么办", "positive": "你好", SOURCE_COLUMN: "a"},
    {"query": "咳", "positive": "感冒咳嗽怎么办呢", SOURCE_COLUMN: "a"},
]
ROUTES = {"query": "query", "positive": "document"}

encoder, mar = cache(helpers.encoder), cache(helpers.mar)


def _collate(rows=ROWS, model=None, **options):
    model = model or encoder()
    return RecordingCollator(preprocess_fn=model.preprocess, **options)(rows)


def _lengths(column, texts=None, special=2):
    """Tokens of each text: one per character, and those that the tokenizer adds."""
    return np.array([len(text) + special for text in texts or [row[column] for row in ROWS]])


def test_the_record_counts_the_tokens_of_every_text():
    batch = _collate()
    record = batch[RECORD_KEY]
    assert record.sources == ["a", "a", "a"]
    assert record.texts == {name: [row[name] for row in ROWS] for name in ("query", "positive")}
    for column in ("query", "positive"):
        lengths = _lengths(column)
        assert record.tokens[column] == lengths.sum()
        assert record.squares[column] == (lengths**2).sum()
        assert record.padded[column] == len(lengths) * lengths.max() == batch[f"{column}_input_ids"].numel()
    assert record.routes == {}


def test_columns_go_through_their_routes():
    batch = _collate(model=mar(), router_mapping=ROUTES)
    assert batch[RECORD_KEY].routes == ROUTES
    assert batch[RECORD_KEY].tokens["positive"] == _lengths("positive", special=1).sum()


@pytest.mark.parametrize("labels", [[0.5, 1.0, 0.0], list(torch.eye(3)), list(torch.randn(3, 2, 4))])
def test_labels_are_numbers_vectors_or_several_vectors(labels):
    rows = [{**row, "label": label} for row, label in zip(ROWS, labels, strict=True)]
    batch = _collate(rows)
    expected = torch.stack(labels) if torch.is_tensor(labels[0]) else torch.tensor(labels)
    assert torch.equal(batch["label"], expected)
    assert list(batch[RECORD_KEY].texts) == ["query", "positive"]


def test_rows_of_several_datasets_each_get_their_own_prompt():
    rows = [{**row, SOURCE_COLUMN: name} for row, name in zip(ROWS, ("a", "b", "c"), strict=True)]
    prompts = {"a": {"query": "发热"}, "b": {"query": "", "positive": "医生"}}
    batch = _collate(rows, mixed=True, prompts=prompts)
    record = batch[RECORD_KEY]
    assert record.sources == ["a", "b", "c"]
    assert record.texts["query"] == ["发热头疼", "高血压怎么办", "咳"]
    assert record.texts["positive"] == ["头疼吃什么药好", "医生你好", "感冒咳嗽怎么办呢"]
    assert record.tokens["query"] == _lengths("query", record.texts["query"]).sum()
    assert rows[0]["query"] == "头疼"  # the rows are left as they are


def test_a_mixed_batch_of_one_dataset_has_the_tokens_of_an_unmixed_one():
    prompts = {"a": {"query": "发热"}}
    mixed, plain = (_collate(mixed=value, prompts=prompts) for value in (True, False))
    for name in ("query_input_ids", "positive_input_ids"):
        assert torch.equal(mixed[name], plain[name])
    assert mixed[RECORD_KEY].tokens == plain[RECORD_KEY].tokens


COLUMNS = {"a": ["query", "positive"], "b": ["query", "positive"]}


@pytest.mark.parametrize(
    ("columns", "routes", "message"),
    [
        (
            {**COLUMNS, "b": ["query", "positive", "negative_1"]},
            {},
            r"'a' has query, positive and 'b' has query, ",
        ),
        ({**COLUMNS, "b": ["positive", "query"]}, {}, "needs the same columns"),
        (
            COLUMNS,
            {"a": ROUTES, "b": {"query": "query", "positive": "query"}},
            "'positive' goes to 'document' for 'a'",
        ),
        (COLUMNS, {"a": ROUTES}, "'query' goes to 'query' for 'a' and to None for 'b'"),
    ],
)
def test_datasets_that_cannot_share_a_batch_are_refused(columns, routes, message):
    with pytest.raises(BatchError, match=message) as caught:
        check_mixture(columns, routes, stage="joint")
    assert str(caught.value).startswith("stage joint: 'batches: mixed' needs")
    assert str(caught.value).endswith("Use 'batches: one-source', or leave one of them out with 'data'.")


def test_different_prompts_are_refused_only_if_pooling_leaves_them_out():
    prompts = {"a": {"query": "检索："}}
    for names in (("a", "b"), ("b", "a"), ("b", "c", "a")):
        columns = {name: ["query", "positive"] for name in names}
        check_mixture(columns, {}, stage="joint", prompts=prompts)
        with pytest.raises(BatchError, match="have different prompts, which this model's pooling leaves out"):
            check_mixture(columns, {}, stage="joint", prompts=prompts, pooled_prompts=False)
    same = {"a": {"query": "检索："}, "b": {"query": "检索："}}
    check_mixture(COLUMNS, {}, stage="joint", prompts=same, pooled_prompts=False)
