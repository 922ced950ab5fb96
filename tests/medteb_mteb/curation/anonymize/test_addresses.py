"""Addresses below the district, Chinese and English."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.addresses import Address, EnglishAddress


def values(kind, text):
    return [text[one.start : one.end] for one in kind().analyze(text, [])]


@pytest.mark.parametrize(
    "address",
    [
        "浙江省杭州市西湖区文三路478号3幢502室",
        "文三路478号",
        "朝阳区建国路88号院5号楼3单元",
        "颍上县王岗镇李庄村",
        "阳光花园3座502",
        "阳光公寓12F",
        "万达大厦B座",
        "锦绣家园甲3户",
    ],
)
def test_an_address_is_found_up_to_its_last_part(address):
    assert values(Address, address) == [address]
    assert values(Address, f"家住{address}，有电梯") == [address]


@pytest.mark.parametrize("label", ["住址：", "籍贯：", "户籍地：", "户口所在地：", "老家：", "现住", "家在"])
@pytest.mark.parametrize("place", ["安徽省阜阳市", "安徽省阜阳市颍上县", "山东济南"])
def test_after_every_label_a_city_is_an_address(label, place):
    assert values(Address, f"{label}{place}，汉族") == [place]
    assert values(Address, f"{place}的医院好") == []


@pytest.mark.parametrize(
    "text",
    [
        "胆道、尿道、呼吸道感染",
        "口服两片，3次一天，住院2天",
        "江苏省人民医院3号楼5楼检验科",
        "门诊3号诊室",
        "在路上走了2里",
        "住址：不详",
        "籍贯：",
    ],
)
def test_medical_words_and_hospitals_are_not_addresses(text):
    assert values(Address, text) == []


@pytest.mark.parametrize(
    "address",
    [
        "12 Baker Street, London",
        "1600 Pennsylvania Ave",
        "742 Evergreen Terrace, Apt. 4B, Springfield, IL 62704",
    ],
)
def test_an_english_address_is_found_with_flat_city_and_code(address):
    assert values(EnglishAddress, f"She lives at {address}; seen today.") == [address]


@pytest.mark.parametrize("text", ["12 Patients", "5 mg daily", "Baker Street"])
def test_a_number_without_a_street_is_no_english_address(text):
    assert values(EnglishAddress, text) == []
