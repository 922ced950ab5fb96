"""Hospital beds with their ward and hospital; numbers of beds and furniture stay."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.addresses import Bed

BEDS = [
    "12床",
    "加3床",
    "临2床",
    "A12床",
    "12-3床",
    "3A床",
    "8 号床",
    "心内科12床",
    "心内科一病区，6床",
    "ICU3床",
    "EICU12床",
    "浙江省人民医院心内科12床",
]


@pytest.fixture(scope="module")
def beds():
    recogniser = Bed()
    return lambda text: [text[one.start : one.end] for one in recogniser.analyze(text, [])]


@pytest.mark.parametrize("bed", BEDS)
def test_a_bed_is_found_with_the_ward_and_the_hospital_before_it(beds, bed):
    assert beds(bed) == [bed]
    assert beds(f"现住{bed}，今晨发热；") == [bed]


@pytest.mark.parametrize(
    ("text", "bed"),
    [
        ("床号：15，男", "15"),
        ("床号 加3，女", "加3"),
        ("床号是B12", "B12"),
        ("Transferred to Ward 3, Bed 12 overnight", "Ward 3, Bed 12"),
        ("seen in ICU bed 4B today", "ICU bed 4B"),
    ],
)
def test_a_labelled_number_is_a_bed_without_its_chinese_label(beds, text, bed):
    assert beds(text) == [bed]


@pytest.mark.parametrize(
    "text",
    [
        "本院开放500床",
        "内科共30床",
        "科室有40床",
        "编制床位80床",
        "3张床",
        "12床位",
        "12床旁超声",
        "6床单",
        "2床棉被",
        "剂量3.5床",
        "床号：",
        "卧床3天",
        "advised bed rest for 3 days",
        "bed 12",
    ],
)
def test_numbers_of_beds_and_furniture_are_not_beds(beds, text):
    assert beds(text) == []
