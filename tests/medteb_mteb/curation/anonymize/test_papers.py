"""Numbers of persons: identity cards, papers, records, bank cards and plates."""

from __future__ import annotations

import random

import pytest

from medteb_mteb.curation.anonymize.checks import id_card_digit
from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.papers import (
    BankCard,
    Code,
    IdentityCard,
    Papers,
    Plate,
    RecordNumber,
    SocialSecurity,
)


@pytest.fixture(scope="module")
def finder():
    return Finder()


def identifiers(finder, text):
    return [(span.kind, text[span.start : span.end]) for span in finder(text) if span.kind != "NAME"]


def values(kind, text):
    return [text[one.start : one.end] for one in kind().analyze(text, [])]


@pytest.mark.thorough
def test_an_identity_card_is_found_by_its_check_digit(finder):
    first = "11010519491231002"
    right = first + id_card_digit(first)
    assert right.endswith("X")
    assert identifiers(finder, f"编号{right}。") == [("ID_CARD", right)]
    # A slip in the last digit is still a person; another number of 18 digits is not.
    assert identifiers(finder, f"身份证{first}1") == [("ID_CARD", f"{first}1")]
    assert identifiers(finder, f"编号99{first[2:]}1。") == []
    assert identifiers(finder, "编号110105194913310021。") == []


def test_every_identity_card_with_its_check_digit_is_certain():
    draw = random.Random(0)
    for _ in range(100):
        first = f"{draw.choice(['11', '32', '65'])}0105{draw.randint(1930, 2020)}0{draw.randint(1, 9)}15"
        first += f"{draw.randrange(1000):03}"
        card = first + id_card_digit(first)
        for text in (card, f"{card[:6]} {card[6:14]} {card[14:]}", f"{card[:6]}-{card[6:14]}-{card[14:]}"):
            (found,) = IdentityCard().analyze(f"证{text}号", [])
            assert (found.start, found.end, found.score) == (1, 1 + len(text), 1)
        wrong = first + ("1" if card[-1] != "1" else "2")
        assert [one.score < 1 for one in IdentityCard().analyze(wrong, [])] == [True]
        assert values(IdentityCard, f"追溯码：{wrong}") == []


def test_an_old_identity_card_needs_a_label():
    assert values(IdentityCard, "身份证号：110105491231002") == ["110105491231002"]
    assert values(IdentityCard, "流水 110105491231002") == []
    assert values(IdentityCard, "身份证号：110105491331002") == []


def test_a_bank_card_is_found_by_its_luhn_digit(finder):
    card = "6222021000112345672"
    invalid = card[:-1] + str((int(card[-1]) + 1) % 10)
    assert identifiers(finder, f"退到{card}即可") == [("BANK_CARD", card)]
    assert identifiers(finder, f"退到{invalid}即可") == []
    assert identifiers(finder, f"银行卡{invalid}") == [("BANK_CARD", invalid)]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("住院号为：00123456", "RECORD_NUMBER", "00123456"),
        ("医保卡号是：A123456789", "RECORD_NUMBER", "A123456789"),
        ("| 住院号 | 00123456 | 女 |", "RECORD_NUMBER", "00123456"),
        ("住院号:【00123456】", "RECORD_NUMBER", "00123456"),
        ("病历号：2023 0017，女", "RECORD_NUMBER", "2023 0017"),
        ("病历号：ZY 2023 0017", "RECORD_NUMBER", "ZY 2023 0017"),
        ("住院号：123456 2023年3月入院", "RECORD_NUMBER", "123456"),
        ("病历号：123456 1230:45", "RECORD_NUMBER", "123456"),
        ("护照号为：E12345678", "PASSPORT", "E12345678"),
        ("电话为：62345678", "LANDLINE", "62345678"),
        ("出生日期为：1990年3月7日", "BIRTH_DATE", "1990年3月7日"),
        ("微信：wangxiulan", "ACCOUNT", "wangxiulan"),
        ("微信号为：wangxiulan", "ACCOUNT", "wangxiulan"),
    ],
)
def test_a_value_is_found_whole_however_its_label_is_separated(finder, text, kind, value):
    assert identifiers(finder, text) == [(kind, value)]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SocialSecurity, "SSN 123-45-6789.", "123-45-6789"),
        (SocialSecurity, "SSN: 123456789", "123456789"),
        (Papers, "护照号：E12345678，", "E12345678"),
        (Papers, "Passport No. is X1234567.", "X1234567"),
        (Papers, "军官证：南字第1234567号", "南字第1234567号"),
        (RecordNumber, "住院号：20210034567", "20210034567"),
        (RecordNumber, '"病历号": "ZY-2021-0034"', "ZY-2021-0034"),
        (RecordNumber, "MRN: 4455667", "4455667"),
        (RecordNumber, "NHS number 943 476 5919", "943 476 5919"),
        (BankCard, "4111 1111 1111 1111", "4111 1111 1111 1111"),
        (Code, "编 A20210034，", "A20210034"),
        (Plate, "浙A·12345送入", "浙A·12345"),
        (Plate, "粤BD12345", "粤BD12345"),
    ],
)
def test_a_number_of_a_person_is_found_without_its_label(kind, text, value):
    assert values(kind, text) == [value]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SocialSecurity, "000-12-3456, 666-12-3456, 912-34-5678, 123-00-4567, 123-45-0000"),
        (Papers, "护照已过期，请带护照和12345"),
        (RecordNumber, "注册登记号ChiCTR2300071382，登记号：NCT01234567"),
        (RecordNumber, "住院3天，门诊复查2次"),
        (BankCard, "4111 1111 1111 1112"),
        (Code, "剂量200000IU，2021-05-12，20210512，批号：A2021003"),
        (Plate, "苏ABCDE，鲁CD1"),
    ],
)
def test_numbers_of_nobody_stay(kind, text):
    assert values(kind, text) == []
