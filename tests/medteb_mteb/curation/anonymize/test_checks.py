"""Check digits, dates, and the form of texts that the rules match."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.checks import (
    digits_of,
    id_card_digit,
    is_date,
    is_id_card,
    passes_luhn,
    plain,
)


def test_every_character_keeps_its_position_in_the_plain_form():
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    assert len(plain(text)) == len(text)
    assert plain(text) != text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＩＤ１１０", "ID110"),
        ("姓名：張偉，電話：１３８", "姓名:张伟，电话:138".replace(":", "：")),
        ("ｚｈａｎｇ＠ａ．ｃｎ", "zhang@a.cn"),
        ("完．１", "完．1"),
        ("一（二）", "一（二）"),
    ],
)
def test_wide_and_traditional_characters_are_read_and_punctuation_stays(text, expected):
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("text", "digits"),
    [("１３８-0013 8000", "13800138000"), ("٣ 号 ५", "35"), ("壹二½", ""), ("x²", "2"), ("", "")],
)
def test_digits_of_any_script_are_ascii(text, digits):
    assert digits_of(text) == digits


@pytest.mark.parametrize("number", ["11010519491231002X", "440524188001010014", "34052419800101001X"])
def test_published_identity_cards_end_in_their_check_digit(number):
    assert id_card_digit(number[:17]) == number[17]
    assert is_id_card(number)


def test_a_single_wrong_digit_fails_both_checks():
    card, bank = "11010519491231002", "79927398713"
    assert passes_luhn(bank)
    for place in range(17):
        others = [f"{card[:place]}{digit}{card[place + 1 :]}" for digit in "0123456789"]
        assert len({id_card_digit(other) for other in others}) == 10
    for place in range(len(bank)):
        others = [f"{bank[:place]}{digit}{bank[place + 1 :]}" for digit in "0123456789"]
        assert [passes_luhn(other) for other in others].count(True) == 1


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("110105491231002", True),  # 15 digits: the year has two
        ("110105491331002", False),
        ("991105194912310021", False),
        ("110105194902290021", False),
        ("11010519491231002", True),
        ("11010518791231002", False),
        ("", False),
    ],
)
def test_an_identity_card_has_a_province_and_a_date_of_birth(number, expected):
    assert is_id_card(number) is expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        (("2000", "2", "29"), True),
        (("1900", "02", "29"), False),
        (("1880", "1", "1"), True),
        (("1879", "12", "31"), False),
        (("2079", "12", "31"), True),
        (("2080", "1", "1"), False),
        (("2023", "13", "1"), False),
        (("2023", "0", "1"), False),
        (("", "1", "1"), False),
        (("9" * 30, "1", "1"), False),
        (("9" * 5000, "1", "1"), False),
    ],
)
def test_a_date_exists_and_is_of_a_living_person(date, expected):
    assert is_date(*date) is expected
