"""Dates of birth, and in strict mode every date with a day."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.addresses import AnyDate, BirthDate
from medteb_mteb.curation.anonymize.find import Finder

DATES = [
    *("1990年12月15日", "1990-12-15", "1990.2.5", "1990/02/05", "19901215", "90年2月5日"),
    *("1990年农历三月初八", "一九九〇年十二月十五日", "1937年冬月廿三", "1951年腊月初八"),
    *("December 15, 1990", "15th March 1990", "15-Jan-1990", "12/15/1990"),
]


def values(kind, text):
    return {text[one.start : one.end] for one in kind().analyze(text, [])}


@pytest.mark.parametrize("date", DATES)
def test_a_date_is_found_whole_as_a_birth_and_as_a_visit(date):
    for text in (f"出生日期：{date}，", f"DOB: {date}", f"生于{date}。"):
        assert values(BirthDate, text) == {date}, text
    assert values(BirthDate, f"复查 {date}，") == set()
    assert values(AnyDate, f"复查 {date}，") == {date}


@pytest.mark.parametrize("date", ["12月15日", "五月三日", "十二月三十一号"])
def test_a_day_without_a_year_is_a_date(date):
    assert values(AnyDate, f"于{date}手术") == {date}


@pytest.mark.parametrize("end", ["，", "。", "）", ""])
def test_a_day_of_birth_may_lack_its_last_character(end):
    assert values(BirthDate, f"出生日期：1990年12月15{end}") == {"1990年12月15"}


@pytest.mark.parametrize("text", ["出生于2019年5月3个月前", "出生：2019年5月3.2kg"])
def test_a_quantity_after_a_month_is_not_its_day(text):
    assert values(BirthDate, text) == {"2019年5月"}


def test_a_year_a_period_and_a_date_of_something_else_are_not_births():
    for text in ("出生于1990年", "1990年出生", "生于1990年3月至5月", "出生体重3200g", "2020-05-01出生后发热"):
        assert values(BirthDate, text) == set(), text


def test_dates_without_a_day_and_of_products_are_kept_in_strict_mode():
    for text in ("2020年5月复查", "2020-05", "五月天", "批号20200503", "血压120/80，比值1.5-2.5"):
        assert values(AnyDate, text) == set(), text


def test_only_strict_mode_replaces_other_dates():
    text = "Seen on May 5, 2020; born on 5 May 1990."
    assert [span.kind for span in Finder()(text)] == ["BIRTH_DATE"]
    assert [span.kind for span in Finder(strict=True)(text)] == ["DATE", "BIRTH_DATE"]
