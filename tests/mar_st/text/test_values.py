"""Values that are texts, ids, numbers, grades or documents."""

from __future__ import annotations

import datetime as dt

import pytest

from mar_st.text.values import TsvCell, as_date, as_grade, as_id, as_number, as_text, is_document, writable

BIG = "1" * 5000


@pytest.mark.parametrize(
    ("value", "text", "identifier"),
    [
        ("文", "文", "文"),
        (" a ", " a ", " a "),
        (TsvCell("a"), "a", "a"),
        (7, None, "7"),
        (-1, None, "-1"),
        (1.0, None, "1"),
        (TsvCell("1.0"), "1.0", "1"),
        *[
            (value, None, None)
            for value in ("", " \t\u3000", "\ud800", "a\udfff", True, 1.5, None, ["a"], {})
        ],
    ],
)
def test_only_some_values_are_texts_or_ids(value, text, identifier):
    assert (as_text(value), as_id(value)) == (text, identifier)
    assert type(as_text(value)) in (str, type(None))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *[(value, 2.0) for value in (2, 2.0, TsvCell("2"), TsvCell(" 2.0 "), TsvCell("2e0"))],
        *[
            (TsvCell(value), None)
            for value in ("", "two", "nan", "inf", "-Infinity", "1e999", "0x2", "1_0", BIG)
        ],
        *[(value, None) for value in ("2", True, None, [2], float("nan"), float("inf"), 10**400)],
    ],
)
def test_numbers_are_finite_and_only_cells_may_be_text(value, number):
    assert as_number(value) == number


@pytest.mark.parametrize(
    ("value", "grade"),
    [(2, 2), (-1, -1), (2.0, 2), (TsvCell("2.0"), 2), (0.5, None), (TsvCell("0.5"), None), (True, None),
     ("2", None), (2**31, None), (None, None)],
)  # fmt: skip
def test_grades_are_whole_numbers_of_32_bits(value, grade):
    assert as_grade(value) == grade


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [("文", None, True), ("文", "", True), ("文", " ", True), ("", "题", True), ("", "", False),
     (" ", "题", False), (None, "题", False), ("文", "\ud800", False), ("\ud800", "题", False)],
)  # fmt: skip
def test_a_document_has_a_text_or_a_title_alone(text, title, expected):
    assert is_document(text, title) is expected


def test_halves_of_surrogate_pairs_become_question_marks():
    assert writable("a\ud800文") == "a?文"


@pytest.mark.parametrize("value", ["2026-10-05", "2026-10", TsvCell("2024-02-29"), dt.date(2026, 10, 5)])
def test_iso_dates_and_months_are_dates(value):
    assert as_date(value) == str(value)


@pytest.mark.parametrize(
    "value",
    ["2026", "2026-13", "2025-02-29", "05/10/2026", "2026-W05-1", "20261005", "2026-10-05T12:00", 202610],
)
def test_other_forms_and_days_that_do_not_exist_are_none(value):
    assert as_date(value) is None
