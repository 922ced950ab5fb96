"""Wikipedia: pages of categories level by level, sections of a page, answers that are refused."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import wikipedia
from medteb_mteb.curation.relatives.fetch.web import TransientError
from medteb_mteb.curation.relatives.fetch.wikipedia import fetch, members, sections

DISEASES = "Diseases and disorders by system"


@pytest.mark.parametrize(
    ("category", "most", "depth", "pages"),
    [
        ("Pain", 99, 0, [101, 102, 103]),
        ("Pain", 99, 1, [101, 102, 103, 104]),
        ("Pain", 2, 1, [101, 102]),
        (DISEASES, 99, 1, [301, 302]),
        (DISEASES, 99, 2, [301, 302, 303]),  # a subcategory of it is the category itself
        ("Unknown", 99, 1, []),
    ],
)
def test_pages_come_level_by_level_and_once(ask, category, most, depth, pages):
    assert members(ask, category, most, depth) == pages


def test_no_more_lists_are_asked_for_than_needed(ask):
    members(ask, "Pain", 2)
    assert len(ask.asked) == 1
    ask.asked.clear()
    members(ask, DISEASES, 99, 3)
    lists = [address for address in ask.asked if "cmcontinue" not in address]
    assert len(lists) == 4  # the category is below itself, and is listed once


def test_every_page_of_every_category_is_fetched(ask):
    fetch(ask, {"categories": {"Fever": 9, DISEASES: 9}, "depths": {DISEASES: 2}})
    fetched = [address.rpartition("pageids=")[2] for address in ask.asked if "pageids=" in address]
    assert fetched == ["201", "202", "102", "203", "301", "302", "303"]


@pytest.mark.parametrize(
    ("extract", "parts"),
    [
        ("Lead.\n\n== A ==\nOne.\n=== B ===\n\n====== C ======  \nTwo.\n", ["Lead.", "One.", "Two."]),
        ("== Only headings ==\n=== here ===", []),
        ("a == b\n= not ==\n==x", ["a == b\n= not ==\n==x"]),
        ("x\0y", ["x y"]),
        ("", []),
        ("=" * 50_000, []),
        ("== " + "= " * 50_000 + "x", ["== " + "= " * 50_000 + "x"]),
    ],
)
def test_headings_divide_a_page_into_sections(ask, extract, parts):
    ask.contents = [{"query": {"pages": [{"pageid": 1, "extract": extract}]}}]
    assert sections(ask, 1) == parts


def test_a_deleted_page_has_no_sections(ask):
    assert sections(ask, 203) == []


@pytest.mark.parametrize(
    ("pages", "match"),
    [
        (None, "expected one page for id 7, got None"),
        ({"7": {"extract": "x"}}, "expected one page for id 7"),
        ([], "expected one page for id 7"),
        ([{}, {}], "expected one page for id 7"),
        (["x"], "expected one page for id 7"),
        ([{"extract": ["x"]}], "the extract of page 7 is not text"),
    ],
)
def test_a_page_of_another_form_is_refused(ask, pages, match):
    ask.contents = [{"query": {"pages": pages}}]
    with pytest.raises(BuildError, match=match):
        sections(ask, 7)


ENTRY = {"pageid": 1, "ns": 0, "title": "x"}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            {"error": {"code": "badvalue", "info": "Unrecognized value"}},
            r"Wikipedia refuses a request: .*badvalue",
        ),
        ({"error": "gone"}, "Wikipedia refuses a request: 'gone'"),
        (
            {"query": {"categorymembers": []}, "continue": {"cmcontinue": "page|2"}},
            "the list of 'Pain' does not end",
        ),
        ({"query": {"categorymembers": []}, "continue": 7}, "continues in an unknown way"),
        ({"query": {"categorymembers": []}, "continue": {"cmcontinue": 2}}, "continues in an unknown way"),
        *(
            ({"query": {"categorymembers": entries}}, "the list of 'Pain' is not of the documented form")
            for entries in (
                None,
                {},
                [1],
                [{"pageid": "x"}],
                [ENTRY | {"pageid": True}],
                [ENTRY | {"title": 1}],
            )
        ),
    ],
)
def test_a_list_of_another_form_is_one_clear_error(ask, content, match):
    ask.contents = [content] * 9
    with pytest.raises(BuildError, match=match):
        members(ask, "Pain", 9)


def test_a_list_that_goes_in_circles_is_refused(ask, monkeypatch):
    monkeypatch.setattr(wikipedia, "_MAX_LIST_PAGES", 7)
    ask.contents = [
        {"query": {"categorymembers": [ENTRY]}, "continue": {"cmcontinue": str(number % 2)}}
        for number in range(99)
    ]
    with pytest.raises(BuildError, match="the list of 'Pain' does not end"):
        members(ask, "Pain", 9)
    assert len(ask.asked) == 7


def test_subcategories_without_end_are_refused(ask, monkeypatch):
    monkeypatch.setattr(wikipedia, "_MAX_SUBCATEGORIES", 2)
    with pytest.raises(BuildError, match="has more than 2 subcategories"):
        members(ask, DISEASES, 9, 2)


@pytest.mark.parametrize("code", ["maxlag", "ratelimited", "readonly", "internal_api_error_DBQueryError"])
def test_a_server_that_is_busy_is_a_passing_fault_of_five_seconds(ask, code):
    ask.contents = [{"error": {"code": code}}]
    with pytest.raises(TransientError) as caught:
        sections(ask, 1)
    assert caught.value.after == 5


@pytest.mark.parametrize("content", [{}, {"query": []}, {"batchcomplete": True}, b"<html>down</html>"])
def test_an_answer_without_a_query_is_a_passing_fault(ask, content):
    ask.contents = [content]
    with pytest.raises(TransientError):
        members(ask, "Pain", 9)
