"""Tests of records: what a source says of itself, and the lines that its digest is computed over."""

from __future__ import annotations

import json

import pytest

from mar_st.data import Source, Triple
from mar_st.data.records import row_line
from mar_st.recipes.schema import Data

TRIPLE = Triple("问", ("答",), ("错",), "找：", "网")


def _source(form="auto", **fields):
    role = "query" if form == "texts" else None
    return Source(Data(name="qa", path="x", form=form, role=role), **fields)


@pytest.mark.parametrize(
    "row",
    [
        TRIPLE,
        Triple("q", ("a", "b"), ()),
        Triple('引"号\\\n', ("a\t",), (), "前\u2028", "源"),
        Triple("\0", ("\x7f", "😀"), ("", " ")),
        '字"',
        "",
    ],
)
def test_a_line_is_the_json_of_its_row(row):
    content = row if isinstance(row, str) else vars(row)
    assert row_line(row) == json.dumps(content, ensure_ascii=False).encode() + b"\n"


def test_texts_that_change_their_place_give_another_line():
    others = [
        Triple("问", ("答", "错"), (), "找：", "网"),
        Triple("问", ("答, 错",), (), "找：", "网"),
        Triple("找：问", ("答",), ("错",), "", "网"),
        Triple("问", ("答",), ("错",), "网", "找："),
    ]
    assert len({row_line(row) for row in (TRIPLE, *others)}) == 5


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"triples": [TRIPLE]}, "1 triples"),
        ({"form": "texts", "texts": ["一", "二"]}, "2 texts"),
        (
            {"triples": [TRIPLE], "left_out": {"neutral": 3, "beyond the limit": 1}},
            "1 triples; left out: 3 neutral, 1 beyond the limit",
        ),
    ],
)
def test_the_summary_counts_records_and_rows_left_out(fields, expected):
    assert _source(**fields).summary() == expected


def test_columns_that_are_not_read_are_one_note():
    assert _source().notes() == []
    ignored = {"type": "FlagEmbedding's", "answers": "Tevatron's"}
    expected = ["data qa: not read: 'type' (FlagEmbedding's); 'answers' (Tevatron's)"]
    assert _source(ignored=ignored).notes() == expected
