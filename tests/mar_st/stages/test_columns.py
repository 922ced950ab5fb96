"""Columns that a data entry asks for, and which of them hold documents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from datasets import Dataset

from mar_st.errors import MarError
from mar_st.stages.columns import document_columns, read_columns
from tests.mar_st.stages.helpers import TRIPLES, source

SOME = [replace(triple, negatives=triple.negatives if n else ()) for n, triple in enumerate(TRIPLES)]


@pytest.mark.parametrize(
    ("fields", "names", "rows"),
    [
        ({"negatives": 0}, ["query", "positive"], 24),
        ({"negatives": 2}, ["query", "positive", "negative_1", "negative_2"], 24),
        ({"negatives": 0, "weight": 0.5}, ["query", "positive"], 12),
        ({"negatives": 1, "positives": "one-per-epoch"}, ["query", "positive", "negative_1"], 24),
    ],
)
def test_columns_are_those_that_the_entry_asks_for(fields, names, rows):
    columns = read_columns(source(**fields), 3)
    assert (columns.column_names, len(columns)) == (names, rows)


def test_negatives_are_drawn_by_the_seed():
    first, again, other = (read_columns(source(negatives=1), seed)["negative_1"][:] for seed in (3, 3, 4))
    assert first == again != other
    assert all(text in triple.negatives for text, triple in zip(first, TRIPLES, strict=True))


def test_only_nli_data_leave_out_the_rows_without_a_negative():
    nli = replace(source(triples=SOME), form="nli")
    assert read_columns(nli, 3)["query"][:] == [triple.query for triple in TRIPLES[1:]]
    kept = replace(source(triples=SOME, missing_negatives="batch"), form="nli")
    assert read_columns(kept, 3)["query"][:] == [triple.query for triple in TRIPLES]
    with pytest.raises(MarError, match="has no negatives but 1 are asked for"):
        read_columns(source(triples=SOME), 3)


TEXTS = Dataset.from_dict({"query": ["a"], "positive": ["b"], "negative_1": ["c"], "label": ["d"]})
SINGLE = Dataset.from_dict({"text": ["a"]})
ROUTES = {"query": "query", "positive": "document", "negative_1": "document"}


@pytest.mark.parametrize(
    ("dataset", "routes", "expected"),
    [
        (TEXTS, {}, ["positive", "negative_1"]),
        (
            TEXTS,
            {"query": "query", "positive": "document", "negative_1": "document"},
            ["positive", "negative_1"],
        ),
        (TEXTS, {"query": "document", "positive": "query"}, ["query"]),
        (TEXTS, {"query": "query", "positive": "document"}, ["positive"]),
        (TEXTS, {"query": "query", "positive": "query"}, ["positive"]),  # symmetric
        (SINGLE, {}, ["text"]),
        (SINGLE, {"text": "query"}, ["text"]),
    ],
)
def test_documents_are_the_columns_of_their_route_or_all_but_the_first(dataset, routes, expected):
    assert document_columns({"qa": dataset}, {"qa": routes}) == {"qa": expected}
