"""Tests of documents as rows of a collection: types of metadata, limits and batches."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pymilvus
import pytest

from mar_st.encode import write_vectors
from mar_st.index import IndexingError
from mar_st.index.documents import Stored
from mar_st.index.milvus import rows
from mar_st.index.milvus.rows import MAX_ID_BYTES, MAX_TEXT_BYTES, row_of, rows_of, schema_of, takes_nulls
from tests.mar_st.index.conftest import clustered

FIELDS = {"year": "integer", "score": "number", "code": "string", "checked": "boolean"}
VECTOR = np.ones(4, np.float32)


def metadata(values, *, nulls=False):
    row = row_of(Stored("d1", "title", "text", values), VECTOR, FIELDS, nulls=nulls)
    return {name: value for name, value in row.items() if name.startswith("metadata_")}


def test_metadata_are_columns_in_the_order_of_the_fields():
    values = {"checked": False, "code": "A1", "year": 2020, "score": 2.5}
    expected = {"metadata_0": 2020, "metadata_1": 2.5, "metadata_2": "A1", "metadata_3": False}
    assert metadata(values) == metadata(values, nulls=True) == expected


def test_fields_without_a_value_are_sent_only_where_they_may_be_null():
    assert metadata({"year": 2020}) == {"metadata_0": 2020}
    nothing = {"metadata_1": None, "metadata_2": None, "metadata_3": None}
    assert metadata({"year": 2020}, nulls=True) == {"metadata_0": 2020, **nothing}


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ({"score": 3}, {"metadata_1": 3}),  # a whole number is a number
        ({"code": 7}, {"metadata_2": "7"}),  # a field of several types holds strings
        ({"code": True}, {"metadata_2": "true"}),
    ],
)
def test_values_that_fit_a_wider_type_are_taken(values, stored):
    assert metadata(values) == stored


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"year": 2.5}, r"has year=2.5; the collection has year as integer"),
        ({"year": True}, r"has year=True; the collection has year as integer"),
        ({"checked": 1}, r"has checked=1; the collection has checked as boolean"),
        ({"score": "high"}, r"has score='high'; the collection has score as number"),
        ({"weight": 3}, r"has weight=3; the collection has no such field"),
    ],
)
def test_values_of_another_type_are_refused(values, message):
    with pytest.raises(IndexingError, match=rf"Document 'd1' {message}. Build the collection again"):
        metadata(values)


@pytest.mark.parametrize(
    ("what", "limit"), [("id", MAX_ID_BYTES), ("title", MAX_TEXT_BYTES), ("text", MAX_TEXT_BYTES)]
)
def test_the_limit_of_a_text_counts_its_bytes(what, limit):
    document = Stored("d1", "title", "text", {})
    fits = "头" * (limit // 3)
    fits += "x" * (limit - len(fits.encode()))
    assert row_of(document._replace(**{what: fits}), VECTOR, {}, nulls=True)[what] == fits
    with pytest.raises(
        IndexingError, match=rf"The {what} of document .* has {limit + 1} bytes; Milvus takes {limit}"
    ):
        row_of(document._replace(**{what: fits + "x"}), VECTOR, {}, nulls=True)


def test_the_limit_of_metadata_counts_their_bytes():
    fits = "头" * (MAX_TEXT_BYTES // 3)
    assert metadata({"code": fits}) == {"metadata_2": fits}
    with pytest.raises(IndexingError, match="The code of document 'd1' has 65538 bytes; Milvus takes 65535"):
        metadata({"code": fits + "头"})


def test_batches_hold_all_documents_in_the_order_of_their_vectors(tmp_path, monkeypatch):
    vectors = clustered(7, 8)
    ids = [f"d{row}" for row in range(7)]
    folder = write_vectors(tmp_path / "vectors", ids, vectors)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"_id": name, "text": f"text {name}"}) + "\n" for name in reversed(ids))
    )
    (whole,) = rows_of(folder, corpus, {}, nulls=True)
    monkeypatch.setattr(rows, "_ROWS_PER_UPSERT", 3)
    batches = list(rows_of(folder, corpus, {}, nulls=True))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    sent = [row for batch in batches for row in batch]
    assert [(row["id"], row["text"]) for row in sent] == [(name, f"text {name}") for name in ids]
    np.testing.assert_array_equal([row["vector"] for row in sent], vectors)
    np.testing.assert_array_equal([row["vector"] for row in whole], vectors)


@pytest.mark.parametrize("nulls", [True, False])
def test_metadata_without_a_value_need_nullable_fields_or_dynamic_ones(nulls):
    schema = schema_of(pymilvus.MilvusClient, pymilvus.DataType, 4, FIELDS, nulls=nulls)
    columns = {field.name: field.dtype for field in schema.fields if field.name.startswith("metadata_")}
    types = [pymilvus.DataType[name] for name in ("INT64", "DOUBLE", "VARCHAR", "BOOL")]
    assert list(columns.values()) == (types if nulls else [])
    assert all(field.nullable for field in schema.fields if field.name in columns)
    described = {"enable_dynamic_field": schema.enable_dynamic_field}
    client = SimpleNamespace(describe_collection=lambda name: described)
    assert takes_nulls(client, "documents") is nulls
