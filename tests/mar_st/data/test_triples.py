"""Tests of the conversion of rows to triples: columns of every library, and values that are not texts."""

from __future__ import annotations

import math

import pytest

from mar_st.data import DataError, Triple
from mar_st.data.triples import TRIPLE_COLUMNS, ignored_columns, is_column, triple_of

PAIR = {"query": "问", "positive": "答"}
TEMPLATE = "[{instruction}] "


def _triple(row, template=TEMPLATE):
    return triple_of("rows.jsonl:1", row, template)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"query": "问", "anchor": "其他", "positive": "答"}, Triple("问", ("答",))),
        ({"query": "", "anchor": "问", "positive": None, "pos": ["答", "解"]}, Triple("问", ("答", "解"))),
        ({**PAIR, "negative": [], "neg": ["错"]}, Triple("问", ("答",), ("错",))),
        ({**PAIR, "negatives": ["错"], "negative_1": "其他"}, Triple("问", ("答",), ("错",))),
        (
            {**PAIR, "negative_10": "十", "negative_2": "二", "negative_1": ""},
            Triple("问", ("答",), ("二", "十")),
        ),
        ({**PAIR, "negative_1": ["一", "二"], "negative_2": None}, Triple("问", ("答",), ("一", "二"))),
        ({"query": "问", "positive": {"title": None, "text": "文"}}, Triple("问", ("文",))),
        ({"query": "问", "positive": [{"title": "题", "text": "文"}, "答"]}, Triple("问", ("题\n文", "答"))),
        ({**PAIR, "source": "网"}, Triple("问", ("答",), source="网")),
    ],
)
def test_the_first_column_that_holds_texts_is_read(row, expected):
    assert _triple(row) == expected


@pytest.mark.parametrize("query", [None, "", " \t\u3000", 7, ["问"], math.nan, b"q", {"text": "q"}])
def test_a_query_that_is_no_text_is_refused(query):
    with pytest.raises(DataError, match=r"^rows\.jsonl:1: 'query' should be a text that is not empty; it "):
        _triple({"query": query, "positive": "答"})
    with pytest.raises(DataError, match=r"^rows\.jsonl:1: 'anchor' should be a text that is not empty"):
        _triple({"anchor": query, "positive": "答"})


@pytest.mark.parametrize("row", [{"positive": "答"}, {"query": "问"}, {"text": "文"}])
def test_a_row_without_the_column_of_a_query_or_a_positive_is_refused_with_its_columns(row):
    with pytest.raises(DataError, match=r"rows\.jsonl:1: needs 'query' and 'positive' .* has \['\w+'\]"):
        _triple(row)


@pytest.mark.parametrize(
    "value", [" ", ["答", ""], ["答", None], [["答"]], 7, math.nan, b"p", {"text": " "}, {"body": "答"}, [{}]]
)
@pytest.mark.parametrize("column", ["positive", "negatives", "negative_3"])
def test_documents_that_are_no_texts_are_refused_by_column(column, value):
    with pytest.raises(DataError, match=f"rows.jsonl:1: '{column}' should hold texts that are not empty"):
        _triple({**PAIR, "source": "网", column: value})


@pytest.mark.parametrize("value", [None, "", []])
def test_a_row_without_a_positive_is_refused(value):
    with pytest.raises(DataError, match=r"'positive' should be a text that is not empty; it is (N|'|\[)"):
        _triple({"query": "问", "positive": value})


@pytest.mark.parametrize(
    ("instruction", "before"),
    [("找答案", "[找答案] "), ("{instruction}", "[{instruction}] "), ("", ""), (None, "")],
)
def test_the_instruction_of_a_row_fills_the_template_once(instruction, before):
    assert _triple({**PAIR, "instruction": instruction}).instruction == before


@pytest.mark.parametrize("instruction", [math.nan, 5, ["找答案"], {"text": "找答案"}])
def test_an_instruction_that_is_no_text_is_refused_unless_instructions_are_ignored(instruction):
    with pytest.raises(DataError, match=r"rows\.jsonl:1: 'instruction' should be a text or null"):
        _triple({**PAIR, "instruction": instruction})
    assert _triple({**PAIR, "instruction": instruction}, template="") == Triple("问", ("答",))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in TRIPLE_COLUMNS),
        ("negative_12", True),
        ("negative_", False),
        ("negative_x", False),
        ("negative_１", False),
        ("negative_1\n", False),
        ("negative_" + "9" * 10, False),
        ("Query", False),
    ],
)
def test_columns_are_recognised_by_name(name, expected):
    assert is_column(name) == expected


def test_columns_of_other_libraries_are_named_only_if_they_hold_something():
    assert list(ignored_columns({**PAIR, "prompt": "Represent", "neg_scores": [], "label": 0})) == [
        "prompt",
        "label",
    ]
    assert ignored_columns({**PAIR, "type": "", "pos_scores": None}) == {}
