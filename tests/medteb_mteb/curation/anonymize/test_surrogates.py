from __future__ import annotations

import re

import pytest

from medteb_mteb.curation.anonymize.checks import PROVINCES
from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS
from medteb_mteb.curation.anonymize.surrogates import Surrogates

SALT = b"0123456789abcdef0123456789abcdef"
VALUES = {
    "URL": "https://example.com/u/1234",
    "EMAIL": "li.na@example.com",
    "ID_CARD": "11010519491231002X",
    "PHONE": "138-0013-8000",
    "SSN": "219-09-9999",
    "PASSPORT": "E12345678",
    "RECORD_NUMBER": "ZY-2021a0098",
    "BANK_CARD": "4111 1111 1111 1111",
    "LANDLINE": "010-62345678",
    "ACCOUNT": "zhang_wei88",
    "PLATE": "京A·12345",
    "BIRTH_DATE": "1962年5月17日",
    "BED": "市一院心内科12床",
    "ADDRESS": "江苏省南京市鼓楼区汉口路22号",
    "NAME": "欧阳雪梅",
}


@pytest.fixture
def surrogates():
    return Surrogates(SALT)


def test_every_kind_gets_a_different_and_constant_surrogate(surrogates):
    assert set(VALUES) == set(IDENTIFIER_KINDS) - {"DATE"}
    for kind, value in VALUES.items():
        assert surrogates(kind, value) != value
        assert Surrogates(SALT)(kind, value) == surrogates(kind, value)
        # There are few bed numbers to choose from.
        assert kind == "BED" or Surrogates(SALT[::-1])(kind, value) != surrogates(kind, value)


def shape(text):
    return re.sub("[A-Z]", "A", re.sub("[a-z]", "a", re.sub(r"\d", "0", text)))


@pytest.mark.parametrize("kind", ["PHONE", "SSN", "PASSPORT", "RECORD_NUMBER", "BANK_CARD", "LANDLINE"])
def test_the_form_is_kept(surrogates, kind):
    assert shape(surrogates(kind, VALUES[kind])) == shape(VALUES[kind])


def test_surrogates_are_never_valid_identifiers(surrogates):
    for number in range(200):
        card = surrogates("ID_CARD", f"1101051949123{number:04d}1")
        assert card[:2] not in PROVINCES
        assert surrogates("BANK_CARD", f"622202100011234{number:04d}").startswith("0")
        assert not re.match("1[3-9]", surrogates("PHONE", f"1380013{number:04d}"))
    assert surrogates("EMAIL", "a@b.cn").endswith("@example.invalid")
    assert surrogates("SSN", "219-09-9999").startswith("000-")
    assert surrogates("PLATE", "京A12345")[1] == "I"


def test_spellings_of_one_identifier_get_the_same_surrogate(surrogates):
    digits = {
        re.sub(r"\D", "", surrogates("PHONE", text))
        for text in ("13800138000", "138 0013 8000", "138-0013-8000")
    }
    assert len(digits) == 1
    assert surrogates("PHONE", "+86 13800138000") == "+86 " + surrogates("PHONE", "13800138000")
    assert surrogates("EMAIL", "A@B.cn") == surrogates("EMAIL", "a@b.CN")
    assert surrogates("NAME", "张 三") == surrogates("NAME", "张三")
    assert surrogates("BIRTH_DATE", "1962-05-17")[:4] == surrogates("BIRTH_DATE", "1962年5月17日")[:4]


def test_names_keep_their_length_and_a_family_its_name(surrogates):
    assert len(surrogates("NAME", "王秀兰")) == 3
    assert (
        surrogates("NAME", "王秀兰")[0] == surrogates("NAME", "王") == surrogates("NAME", "王伟")[0] != "王"
    )
    assert len(surrogates("NAME", "欧阳雪梅")) == 4
    assert surrogates("NAME", "Emily Carter").split()[1] == surrogates("NAME", "Carter")
    assert "·" in surrogates("NAME", "阿依古丽·买买提")


def test_the_year_of_birth_stays_about_right(surrogates):
    for text in ("1962年5月17日", "1962-05-17", "May 17, 1962", "一九六二年五月"):
        surrogate = surrogates("BIRTH_DATE", text)
        assert abs(int(re.search(r"\d{4}", surrogate).group()) - 1962) <= 2, surrogate


def test_different_identifiers_get_different_surrogates(surrogates):
    phones = {surrogates("PHONE", f"138{number:08d}") for number in range(3000)}
    assert len(phones) == 3000


def test_no_surrogate_is_taken_for_a_real_phone_card_or_landline(surrogates):
    finder = Finder()
    text = "，".join(surrogates(kind, VALUES[kind]) for kind in ("ID_CARD", "PHONE", "LANDLINE"))
    assert finder(text) == []


def test_width_and_the_form_of_a_dot_do_not_count():
    stand_in = Surrogates(b"0" * 32)
    assert stand_in("RECORD_NUMBER", "ＺＹ２０２３０１") == stand_in("RECORD_NUMBER", "ZY202301")
    one, other = stand_in("NAME", "阿卜杜·热西提"), stand_in("NAME", "阿卜杜 • 热西提")
    assert one.split("·") == other.split(" • ")


def test_dates_and_numbers_in_words(surrogates):
    assert surrogates("DATE", "2023年9月30日") == "[日期]"
    assert re.fullmatch("一零[零一二三四五六七八九]{9}", surrogates("PHONE", "幺三八零零一三八零零零"))
