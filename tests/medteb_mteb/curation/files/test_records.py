"""Records between steps: a text survives its row, and a dropped one says why."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import Dropped, Text


@pytest.mark.parametrize(
    "text",
    [
        Text("a", "多喝水。"),
        Text("1", "多喝水。", "感冒", "medteb/3", {"date": "2024-01-01", "tags": ["a", None], "n": 1.5}),
        Text("\u2028", "x\u2028y\x85z\n", "\x85", meta={"": {"deep": []}}),
    ],
)
def test_a_text_is_the_same_after_writing_and_reading(text):
    assert Text.from_json(json.loads(json.dumps(text.to_json(), ensure_ascii=False))) == text


def test_empty_fields_are_left_out_of_rows():
    assert Text("a", "x").to_json() == {"_id": "a", "text": "x"}
    full = Text("a", "x", "t", "v", {"k": 1}).to_json()
    assert list(full) == ["_id", "title", "text", "anonymised", "meta"]


def test_the_full_text_has_the_title_on_a_line_of_its_own():
    assert Text("a", "多喝水。", "感冒").full == "感冒\n多喝水。"
    assert Text("a", "多喝水。").full == "多喝水。"


def test_a_dropped_text_keeps_its_row_and_says_why():
    text = Text("a", "x", meta={"reason": "none of ours"})
    assert Dropped(text, "near-duplicate", "b").to_json() == {
        **text.to_json(), "reason": "near-duplicate", "detail": "b",
    }  # fmt: skip
    assert "detail" not in Dropped(text, "empty").to_json()
